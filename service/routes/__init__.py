"""Every HTTP route. A route translates; it does not decide."""
