from __future__ import annotations

import fcntl
import os
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from holdfast.engine.jvm_lock import hold
from holdfast.engine.queries.watch import java_pid
from holdfast.errors import Conflict
from holdfast.ownership.checkpoint_lock import Owner, fence, holder, holding_process, lock_path

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark


def test_the_jvm_holds_the_lock_and_python_sees_who(spark: SparkSession, tmp_path: Path) -> None:
    path = lock_path((tmp_path / "checkpoint").as_uri(), tmp_path / "home")
    assert path.parent == tmp_path
    assert holder(path) is None
    me = Owner("coffee-shop", "/somewhere", java_pid(spark))
    lock = hold(spark, path, me)
    assert holder(path) == me
    assert holding_process(path) == me.pid
    os.kill(me.pid, 0)
    lock.release()
    assert holder(path) is None
    assert holding_process(path) is None


def test_a_lock_that_python_holds_is_refused_to_the_jvm(spark: SparkSession, tmp_path: Path) -> None:
    path = tmp_path / ".checkpoint.holdfast.lock"
    path.write_text('{"job": "other", "home": "/there", "pid": 42}')
    with path.open("r+") as held:
        fcntl.lockf(held, fcntl.LOCK_EX)
        with pytest.raises(Conflict, match=r"'other' \(process 42, state home /there\)") as caught:
            hold(spark, path, Owner("mine", "/here", java_pid(spark)))
    assert caught.value.where == str(tmp_path / "checkpoint")


def test_a_late_driver_of_an_earlier_leader_does_not_get_a_free_lock(
    spark: SparkSession, tmp_path: Path
) -> None:
    path = tmp_path / ".checkpoint.holdfast.lock"
    pid = java_pid(spark)
    assert fence(path, Owner("job", "/home", 1, term=8))
    # The lock is free, and the later leader's driver has not come yet.
    assert holder(path) is None
    with pytest.raises(Conflict, match="a different supervisor leads job 'job'") as caught:
        hold(spark, path, Owner("job", "/home", pid, term=7))
    assert (caught.value.found, caught.value.expected) == ("term 7", "term 8")
    assert holder(path) is None
    with pytest.raises(Conflict, match="a different supervisor leads job 'job'"):
        fence(path, Owner("job", "/home", 1, term=7))
    lock = hold(spark, path, Owner("job", "/home", pid, term=8))
    assert not fence(path, Owner("job", "/home", 1, term=9))
    lock.release()
    # Another job, and this one without several supervisors, have nothing to do with its terms.
    hold(spark, path, Owner("other", "/home", pid, term=1)).release()
    assert fence(path, Owner("job", "/home", 1, term=8))
    hold(spark, path, Owner("job", "/home", pid)).release()


def test_a_checkpoint_elsewhere_has_its_lock_in_the_state_home(tmp_path: Path) -> None:
    path = lock_path("s3a://bucket/checkpoint", tmp_path)
    assert path.parent == tmp_path / "locks"
    assert path != lock_path("s3a://bucket/other", tmp_path)
