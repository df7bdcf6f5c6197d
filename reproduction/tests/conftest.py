import pytest
from shared_fixtures import data_folder as data_folder
from shared_fixtures import names_for_doctests as names_for_doctests
from shared_fixtures import one_thread as one_thread
from shared_fixtures import own_cache as own_cache
from typer.testing import CliRunner

from laplacebridge.cli.main import app


@pytest.fixture
def call(tmp_path, monkeypatch):
    """Runs the command in this process, in an empty folder."""
    monkeypatch.chdir(tmp_path)

    def called(*arguments):
        return CliRunner().invoke(
            app, [str(argument) for argument in arguments], prog_name="laplacebridge"
        )

    return called
