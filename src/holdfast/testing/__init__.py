"""What tests of your own need: a processor with a manual clock and no JVM. It needs the extra `spark`."""

try:
    from holdfast.testing.harness import Harness
    from holdfast.testing.streams import broadcast
except ModuleNotFoundError as error:
    from holdfast.extras import missing_package

    lacking = missing_package(error, where=__name__, for_jobs=True)
    if lacking is None:
        raise
    raise lacking from error

__all__ = ["Harness", "broadcast"]
