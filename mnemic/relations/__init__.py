"""How systems are related: found by algebra, confirmed in numbers, drawn as a map."""
