"""A run: targets to graphs and tables, rules, findings, and the report that they make."""
