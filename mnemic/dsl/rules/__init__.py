"""What makes no sense, as one-rule functions from a spec to issues; one file a topic."""
