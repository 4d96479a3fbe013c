"""The version of the package, as it is installed."""

from importlib import metadata


def version() -> str:
    """The installed distribution's version; "unknown" where the sources are used without one."""
    try:
        return metadata.version("simdnn")
    except metadata.PackageNotFoundError:
        return "unknown"
