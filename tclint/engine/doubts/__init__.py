"""What a report opens with, because its figures rest on it: guesses, and a forward that hardly trains."""
