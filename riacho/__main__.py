"""`python -m riacho`: the same as the command `riacho`."""

from riacho.cli.main import app

app()
