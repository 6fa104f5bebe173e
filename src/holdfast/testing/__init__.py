"""A test harness for processors, with a manual clock and without a JVM. It needs the extra `spark`."""

try:
    from holdfast.testing.harness import Harness, broadcast
except ModuleNotFoundError as error:
    from holdfast.extras import missing_package

    lacking = missing_package(error, where=__name__, for_jobs=True)
    if lacking is None:
        raise
    raise lacking from error

__all__ = ["Harness", "broadcast"]
