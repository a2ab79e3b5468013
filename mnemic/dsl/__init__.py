"""The spec language: reading YAML, the grammar of expressions, the model of a spec."""
