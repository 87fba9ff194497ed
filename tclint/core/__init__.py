"""What everything else stands on: findings, the generic rule, errors, text, units and files."""
