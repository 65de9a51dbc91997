"""What the settings of this machine let connectors do."""

from service.connect.connectors.api import Environment
from service.settings import Settings
from service.world.clock import World


def environment_of(settings: Settings, world: World) -> Environment:
    """Return what connectors may do here. A directory that is empty in the settings is none."""
    files = settings.connect_files
    return Environment(
        world=world,
        files=None if files is None or files.as_posix() == "." else files,
        private_addresses=settings.connect_private_addresses,
    )
