"""State in TiKV: how a job says where it is."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from holdfast.config.checks import Check, check_fields, optional, refused
from holdfast.config.job.external_store import EXTERNAL, STORE_CHECKS, Knobs, address, external_conf, text
from holdfast.config.setting_report import SettingReport
from holdfast.config.spark_defaults import TIKV_PROVIDER
from holdfast.config.units import Duration, Size
from holdfast.errors import Invalid


def _addresses(value: object, setting: str) -> str:
    if not isinstance(value, str):
        raise refused(setting, value, 'host and port of each PD, such as "pd1.example:2379,pd2.example:2379"')
    return ",".join(address(one.strip(), setting, "pd.example:2379") for one in value.split(","))


_CHECKS: Final[Mapping[str, Check]] = {
    "pd": _addresses,
    "authority": optional(text),
    "certificate": optional(text),
    "key": optional(text),
    **STORE_CHECKS,
}


@dataclass(frozen=True, slots=True)
class TiKV:
    """State in TiKV: it outlives the cluster, and grows with TiKV's.

    It serves Spark's own operators: aggregates, deduplication, session windows and stream-stream joins. The
    session brings Holdfast's jar and fetches TiKV's client. State is kept by RawKV in API version 1, so the
    cluster has to be one of RawKV clients, and not one that holds the tables of TiDB.

    It was run against the mock store of TiKV's authors, never against a real cluster: try your own with
    `scripts/try-tikv.sh`. Commands that read state refuse its checkpoints.

    The first start of a checkpoint pins the kind of store in its offset log. Where the cluster is can change
    with each start, as long as it has the state.

    Args:
        pd: Host and port of each placement driver, with commas between.
        authority: A PEM file on driver and executors with the certificate authority of the servers. With it
            TLS is spoken, and TiKV's client then needs the other two files as well.
        certificate: A PEM file on driver and executors with the certificate that is shown to them.
        key: A PEM file on driver and executors with the key of that certificate, in PKCS 8.
        prefix: What all keys begin with.
        retain: The number of versions that the database keeps before the newest.
        cache: How much of the state an executor holds in memory, so that it need not ask again.
        patience: How long a task asks again where the cluster does not answer, before it fails.

    Raises:
        Invalid: A value that does not fit, with what is allowed.
    """

    pd: str = "127.0.0.1:2379"
    authority: str | None = None
    certificate: str | None = None
    key: str | None = None
    prefix: str = "holdfast"
    retain: int = 10
    cache: Size = "256m"
    patience: Duration = "1m"

    def __post_init__(self) -> None:
        check_fields(self, "TiKV", _CHECKS)
        files = (self.authority, self.certificate, self.key)
        if None in files and any(files):
            raise Invalid(
                "TLS to TiKV needs three files",
                where="TiKV(authority=…, certificate=…, key=…)",
                found=", ".join(file for file in files if file),
                expected="authority, certificate and key, or none of them",
            )

    def spark_conf(self) -> dict[str, str]:
        """Give the Spark settings of this store.

        Pinned in the offset log by the first start: the provider class.
        """
        conf = {
            **external_conf(TIKV_PROVIDER, self),
            f"{EXTERNAL}.tikv.pd": self.pd,
        }
        for name in ("authority", "certificate", "key"):
            if (file := getattr(self, name)) is not None:
                conf[f"{EXTERNAL}.tikv.{name}"] = file
        return conf

    def secrets(self, environ: Mapping[str, str] | None = None) -> dict[str, str]:  # noqa: ARG002 - as of Redis
        """Give the settings that belong in no command line: there are none, keys are named by their files."""
        return {}

    def knobs(self) -> tuple[SettingReport, ...]:
        """Tell what each field becomes, in the order of the fields."""
        knobs = Knobs(self.spark_conf())
        return (
            knobs.shown("pd", self.pd, "tikv.pd", "Every executor asks one of them where the data is."),
            knobs.shown(
                "authority",
                self.authority,
                "tikv.authority",
                "A PEM file on driver and executors with the servers' authority; it turns TLS on.",
            ),
            knobs.shown(
                "certificate",
                self.certificate,
                "tikv.certificate",
                "What driver and executors show the servers.",
            ),
            knobs.shown("key", self.key, "tikv.key", "The file of that certificate's key, in PKCS 8."),
            *knobs.common(self),
        )
