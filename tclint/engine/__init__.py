"""One run: targets are traced or parsed, rules check them, and the findings make a report."""
