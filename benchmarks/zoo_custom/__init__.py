"""Hand-written models of the kinds that trip tracers; every `build_*` returns (model, inputs)."""
