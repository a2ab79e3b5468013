"""From a rule to a plan, from a plan to source, from source to a folder that runs."""
