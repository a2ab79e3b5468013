"""From a spec to what it means: problem, rule, class, cost; every step a plain function."""
