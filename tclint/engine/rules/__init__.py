"""Which rules there are: found, checked, selected and retired."""
