"""What the HTML report carries with it: its style and script, and Chart.js as its authors publish it."""
