"""Every path renders back to itself, and every value that renders parses back to itself."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from golden import NAMES, golden_files
from holdfast import layout
from holdfast.layout import FileKind, StoreFile, StoreId

numbers = st.integers(0, 10**12)
uuids = st.uuids().map(str)
names = st.text("abcdefghijklmnopqrstuvwxyzABC-_0123456789", min_size=1, max_size=12).filter(
    lambda name: name not in {"_metadata", "SSTs", "logs", "default"}
)
stores = st.builds(StoreId, numbers, numbers, st.one_of(st.just("default"), names))
places: st.SearchStrategy[Any] = st.one_of(
    st.just(layout.QueryMetadataFile()),
    st.builds(layout.LogFile, st.sampled_from(layout.Log), numbers),
    st.builds(layout.SourceLogFile, names, numbers, st.booleans()),
    st.builds(layout.OperatorMetadataFile, numbers, st.one_of(st.none(), numbers)),
    st.builds(layout.SchemaFile, numbers, names, numbers, uuids),
    st.builds(layout.SchemaFile, numbers, st.one_of(st.just("default"), names)),
    st.builds(StoreFile, stores, numbers, st.sampled_from(FileKind), st.one_of(st.none(), uuids)),
    st.builds(layout.SharedSstFile, stores, st.just("SSTs"), uuids.map(lambda each: f"000012-{each}.sst")),
    st.builds(layout.OwnFile, st.just("operator-visits.json")),
)


@given(places)
def test_a_value_renders_to_a_path_that_parses_to_it(place: Any) -> None:
    assert layout.parse(place.render()) == place


@given(places)
def test_so_do_its_checksums(place: Any) -> None:
    path = place.render()
    for sums in (layout.HadoopChecksumFile(path), layout.SparkChecksumFile(path)):
        assert layout.parse(sums.render()) == sums
    both = layout.HadoopChecksumFile(layout.SparkChecksumFile(path).render())
    assert layout.parse(both.render()) == both


PIECES = """metadata offsets commits sources state _metadata _stateSchema v2 SSTs 0 1 007 9.compact schema
default left .0.crc 3.zip 3.zip.crc .x.tmp .crc"""
pieces = st.sampled_from([*PIECES.split(), ""])


@given(st.one_of(st.lists(pieces, min_size=1, max_size=7).map("/".join), st.text(max_size=30)))
def test_any_path_renders_back_to_itself(path: str) -> None:
    assert layout.parse(path).render() == path


@pytest.mark.parametrize("name", NAMES)
def test_no_file_of_a_real_checkpoint_is_unknown(name: str) -> None:
    unknown = [path for path in golden_files(name) if isinstance(layout.parse(path), layout.UnknownFile)]
    assert unknown == []
