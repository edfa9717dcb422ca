"""What a recipe asks for: the checked contents of YAML files, and named calibrations."""
