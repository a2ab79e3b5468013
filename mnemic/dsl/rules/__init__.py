"""Rules that refuse senseless specs, each a function from a spec to issues; one file per topic."""
