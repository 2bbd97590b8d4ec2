"""How fast the parts are, each beside the plain way of doing the same: `python -m bench --help`."""
