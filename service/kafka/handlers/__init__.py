"""From a decoded request to its response: no sockets, so the simulation can call them."""
