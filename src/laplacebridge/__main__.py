"""`python -m laplacebridge` is the command `laplacebridge`."""

from laplacebridge.cli.main import app

app(prog_name="laplacebridge")
