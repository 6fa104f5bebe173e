"""What tests of your own need: a processor with a manual clock and no JVM."""

from holdfast.testing.harness import Harness
from holdfast.testing.streams import broadcast

__all__ = ["Harness", "broadcast"]
