"""The search over specs: the tasks that score a model, and (later) the study over them."""
