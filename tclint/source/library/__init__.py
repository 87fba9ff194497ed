"""What libraries do, as data: one TOML file per library; README.md says what the fields mean."""
