"""One module per report format, each with `render(report)`."""
