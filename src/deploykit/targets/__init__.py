"""What a target is: the schema, the reference grammar, and the catalogue in `targets/`."""
