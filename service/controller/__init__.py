"""The controller: zones that fail and return, verification, live gateways."""
