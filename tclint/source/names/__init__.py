"""What names stand for, in a file, its project and the libraries that it uses."""
