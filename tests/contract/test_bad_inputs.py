"""What a hurried person types: each is answered by one message and its exit code, and leaves nothing behind.

No traceback, no internal error, no file that was not there, none changed.
"""

from __future__ import annotations

import os
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest
from cli_runner import cli_in
from grid import WHOLE, one_in
from verb_calls import below, furnished, leaves, lines_of, verb_of, words_of

WRONG, MISSING, CONFLICT, UNAVAILABLE, UNSUPPORTED = 2, 3, 4, 5, 7
LONG: Final = "n" * 300

# A line is what is typed behind `holdfast`, with the exit codes that are right for it.
# CK is a checkpoint, SP a savepoint of it, CAT the directory of savepoints, FILE a file, JOB.py a job file.
# LOOP and DANGLING are links that lead nowhere, PIPE and SOCKET what they are called, LONG is a name that no
# file can have.
CASES: Final = {
    MISSING: """
        checkpoint show nowhere
        checkpoint show CK/offsets
        checkpoint show CK/state/0
        checkpoint show FILE
        checkpoint history nowhere
        checkpoint release nowhere
        checkpoint release FILE
        checkpoint verify nowhere
        doctor nowhere
        doctor CK nowhere
        checkpoint verify FILE
        savepoint take nowhere new
        savepoint take CK CAT --batch 77
        savepoint list nowhere
        savepoint list empty
        savepoint list FILE
        savepoint list CK
        savepoint verify CAT/savepoints/20261124T015339.599Z-dc4ac6d3-b1-ffff
        savepoint show CAT/savepoints/20261124T015339.599Z-dc4ac6d3-b1-ffff
        savepoint delete CAT/savepoints/20261124T015339.599Z-dc4ac6d3-b1-ffff --yes
        savepoint diff SP nowhere
        restore CAT/savepoints/20261124T015339.599Z-dc4ac6d3-b1-ffff new
        fork CAT/savepoints/20261124T015339.599Z-dc4ac6d3-b1-ffff new
        rescale nowhere new --partitions 3
        state list nowhere
        state get nowhere aggregate c1
        state get CK nostate c1
        state get CK aggregate nobody
        state get CK '{nobody'
        state get CK aggregate '[1, 2]'
        state get CK nobody
        state get CK aggregate c1 --batch 77
        state get CK aggregate c1 --operator other
        state scan CK nostate
        state scan nowhere
        state explain CK aggregate nobody
        state diff SP nowhere
        state erase nowhere nobody --yes
        state edit SP nostate --set count=1 --all --yes
        state migrate nowhere new --backend rocksdb
        ttl nowhere --what-if 1h
        skew nojob
        cost nowhere
        cost empty
        cost CAT
        cost CK --prices nofile.toml
        cost CAT/savepoints/20261124T015339.599Z-dc4ac6d3-b1-ffff
        lint nowhere
        advise nowhere
        advise nojob
        advise empty
        advise CAT
        advise CK/offsets
        advise FILE
        advise CK --prices nofile.toml
        advise CK --measured nofile.json
        lint nofile.py
        lint JOB.py nofile.py
        lint empty
        lint CAT
        lint CK/offsets
        lint DANGLING.py
        status nojob
        status ''
        stop nojob
        stop nojob --savepoint FILE
        cancel nojob
        restart nojob
        upgrade nojob new.py
        upgrade nojob --back
        apply nofile.toml
        apply DEPLOYMENT.toml nojob
        mirror nowhere made
        watch nowhere
        offsets show nowhere
        offsets show empty
        offsets set nowhere new --at orders:0:1 --confirm-stopped
        offsets set orders new --from nofile.txt --confirm-stopped
        offsets set orders new --at nothing:0:1 --confirm-stopped
        offsets set orders new --at orders:0:1 --source nothing --confirm-stopped
        offsets skip nowhere new --rows orders:0:1 --confirm-stopped
        offsets skip CAT new --rows orders:0:1 --confirm-stopped
        offsets translate nowhere new --topic a=b --confirm-stopped
        offsets translate orders new --map nofile.csv --confirm-stopped
        offsets translate orders new --topic nothing=new --confirm-stopped
        check nofile.py --against CK
        check-spark nowhere 4.2
        explain HF-E0000
        explain nothing
        help nothing
        help savepoint nothing
        evolve CK nofile.py --confirm-stopped
        compare SP nofile.py --original nofile.py
        check JOB.py --against nowhere
        check JOB.py:nope --against CK
        drill nowhere
        run nofile.py --no-rest
        demo tea-house
        checkpoint verify DANGLING
        checkpoint show LOOP
        savepoint gc FILE
        state history CK aggregate c1 --savepoints FILE
        state get CK --operator 99 aggregate c1
        state bootstrap JOB.py new --from nofile.py
        serve --token-file empty --port 0
        checkpoint history PIPE
        savepoint digest nowhere
        savepoint digest CK
        savepoint gc nowhere
        savepoint verify SOCKET/savepoints/20261124T015339.599Z-dc4ac6d3-b1-ffff
        state history CK aggregate c1 --savepoints nowhere
        state history CK nostate c1
        state bootstrap nofile.py new --from HISTORY.py
        drill SP --job nofile.py
        fork SP --compare nofile.py --original JOB.py
        fork SP --compare JOB.py --original nofile.py
        check LOOP --against CK
        check LONG --against CK
        doctor --job nofile.py
        run nofile.py
        run DANGLING --dry-run
        watch /dev/zero --once
        watch PIPE --once
        state undo CAT/savepoints/20261124T015339.599Z-dc4ac6d3-b1-ffff --yes
    """,
    CONFLICT: """
        alerts export --output FILE
        demo --keep FILE
        demo --keep CK
        tour FILE --yes
        tour CK --yes
        state erase CAT c1 --certificate FILE --yes
        savepoint take CK FILE
        savepoint take CK FILE/a/b
        savepoint take CK /dev/null
        restore SP CK
        restore SP FILE
        restore SP FILE/a
        fork SP CK
        fork SP FILE
        offsets set orders new --at orders:0:1
        offsets set orders FILE --at orders:0:1 --confirm-stopped
        offsets translate orders CK --topic orders=o2 --confirm-stopped
        rescale CK FILE --partitions 3 --confirm-stopped
        rescale CK CK --partitions 3 --confirm-stopped
        state migrate CK CAT --backend rocksdb --confirm-stopped
    """,
    UNAVAILABLE: "checkpoint show hdfs://127.0.0.1:1/x",
    UNSUPPORTED: "state migrate CK new --backend tikv",
    WRONG: """
        nonsense
        --nonsense
        checkpoint
        checkpoint nonsense
        checkpoint show
        checkpoint show CK CK
        checkpoint show ''
        checkpoint show CK --nonsense
        checkpoint show ftp://x/y
        checkpoint show http://127.0.0.1/x
        checkpoint history CK --last 0
        checkpoint history CK --last x
        savepoint
        savepoint take
        savepoint take CK CAT --batch -1
        savepoint take CK CAT --batch x
        savepoint take CK CAT --batch 1e3
        savepoint take CK CAT --label
        savepoint take CK ftp://x/y
        savepoint show CAT
        savepoint show SP/../x
        savepoint show CAT/savepoints/nope
        savepoint show ''
        savepoint verify FILE/x
        savepoint diff SP
        savepoint diff SP SP --files --master local[1]
        savepoint verify SP --master nonsense://x
        savepoint delete SP
        savepoint label SP
        savepoint gc CAT --older-than never
        savepoint gc CAT --older-than 5
        savepoint take CK CAT --every never
        savepoint take CK CAT --every -3s
        restore
        restore SP
        restore CK new
        restore '' new
        fork CK new
        rescale CK
        rescale CK --partitions 0
        rescale CK --partitions -3
        rescale CK --partitions many
        rescale CK --partitions 3.5
        rescale CK new --partitions 99999999999 --confirm-stopped
        state get
        state get CK
        state get CK aggregate
        state get CK aggregate '{"customer": "c1"'
        state get CK aggregate '{"customer": "c1", "x": 1}'
        state get CK aggregate '{"x": 1}'
        state get CK aggregate c1,c2 c3
        state get CK aggregate c1 --batch -1
        state get CK aggregate c1 --batch x
        state scan CK --where '('
        state scan CK --where 'nocolumn = 1'
        state scan CK --where '1; drop table x'
        state scan CK --where 'count = (select 1 from read_text("/etc/passwd"))'
        state scan CK --sql drop
        state scan CK --sql 'copy aggregate to "new"'
        state scan CK --sql 'select * from nothing'
        state scan CK aggregate --sql 'select 1'
        state scan CK --limit -1
        state scan CK --limit x
        state scan CK --output new.csv
        state scan CK --output ''
        state history CK
        state explain CK
        state diff SP
        state edit SP
        state edit SP --set count=1
        state edit SP --set count=1 --yes
        state edit SP --delete --yes
        state edit SP --set count --all --yes
        state edit SP --set nocolumn=1 --all --yes
        state edit SP --set count=abc --all --yes
        state edit SP --set customer=1 --all --yes
        state edit SP --set count=1 --all --where true --yes
        state edit SP --set count=1 --delete --all --yes
        state edit SP --set 'count=1/0' --all --yes
        state edit SP --set 'count=99999999999999999999' --all --yes
        state edit SP --insert '{bad' --yes
        state edit SP --insert '[]' --yes
        state edit SP --insert '{}' --yes
        state edit SP --delete --key c1
        state edit SP --delete --where 'count > 1' --catalog ftp://x/y --yes
        state undo SP --yes
        state erase nobody
        state erase CAT c1
        state migrate CK
        state migrate CK --code
        state bootstrap JOB.py
        ttl CK
        ttl CK --what-if 0
        ttl CK --what-if -5s
        ttl CK --what-if 5
        cost
        cost --rate 5
        cost --keys 5
        cost --rate 0 --keys 5
        cost --rate nan --keys 5
        cost --rate 5 --keys -1
        cost --rate 5 --keys 5 --value-bytes 0
        cost --rate 5 --keys 5 --partitions 0
        cost --rate 5 --keys 5 --interval 0s
        cost --rate 5 --keys 5 --on tape
        cost --rate x --keys 5
        cost CK --rate 5 --keys 5
        cost CK --interval soon
        cost CK --interval 5
        cost CK --prices FILE
        cost CK --prices CK
        cost CK --prices PIPE
        cost CK --prices s3://x/y
        cost ftp://x/y
        lint
        advise
        advise ''
        advise CK --rate 5 --keys 5
        advise CK --value-bytes 5
        advise --rate 5
        advise --keys 5
        advise --value-bytes 5
        advise --topic memory
        advise --rate -5 --keys 5
        advise --rate nan --keys 5
        advise --rate inf --keys 5
        advise --rate 5 --keys 0
        advise --rate 5 --keys -1
        advise --rate 5 --keys many
        advise --rate 5 --keys 99999999999999999999
        advise --rate 5 --keys 5 --value-bytes -1
        advise --rate 5 --keys 5 --latency 0
        advise CK --topic nothing
        advise CK --topic memory,nothing
        advise CK --topic ''
        advise CK --latency soon
        advise CK --latency -1s
        advise CK --cores 0
        advise CK --conf x
        advise CK --prices CK
        advise CK --prices /dev/zero
        advise CK --measured CK
        advise CK --measured FILE
        advise CK --measured /dev/zero
        advise CK --home ''
        advise ftp://x/y
        advise LONG
        lint FILE
        lint JOB.py CK
        lint JOB.py JOB.py --plan
        lint CK --format xml
        lint PIPE
        lint SOCKET
        lint /dev/zero
        lint ''
        lint LONG
        lint ftp://x/y
        ttl CK --what-if soon
        ttl CK --what-if 99999999999999999999d
        ttl CK --watermark x
        skew CK --top x
        alerts
        alerts list --nonsense
        mirror CK
        mirror CK CK/inside --once
        mirror CK made --once --retain soon
        mirror CK made --once --alert mirror_age=x
        watch CK --every 0
        watch CK --every never
        check
        check JOB.py
        check-spark CK
        check-spark
        compare SP
        evolve CK
        version 2
        version --nonsense
        check FILE --against CK
        offsets
        offsets show
        offsets show orders --source x
        offsets set orders new --confirm-stopped
        offsets set orders new --at orders:0:1 --version 3 --confirm-stopped
        offsets set orders new --at orders:0 --confirm-stopped
        offsets set orders new --at orders:0:-1 --confirm-stopped
        offsets set orders new --version x --confirm-stopped
        offsets set orders new --offset '{bad' --confirm-stopped
        offsets set orders new --from PIPE --confirm-stopped
        offsets set orders new --from /dev/zero --confirm-stopped
        offsets skip orders new --confirm-stopped
        offsets skip orders new --rows orders:0:many --confirm-stopped
        offsets skip orders new --rows orders:0:1 --file x --confirm-stopped
        offsets translate orders new --confirm-stopped
        offsets translate orders new --topic orders --confirm-stopped
        offsets translate orders new --topic =new --confirm-stopped
        offsets translate orders new --map FILE --confirm-stopped
        drill SP --max 0
        drill SP --max forever
        run
        run FILE --no-rest
        run JOB.py --no-rest --set x
        run JOB.py --no-rest --conf x
        run JOB.py --no-rest --conf =1
        run JOB.py --port 99999999
        run JOB.py --port x
        serve --port -1
        serve --port 99999999
        serve --tls-cert FILE
        serve --host 0.0.0.0 --port 0
        serve --home FILE
        list --nonsense
        status
        bench nope
        completion
        completion tcsh
        bench startup --runs 0
        bench keyed --keys many
        stop
        stop shop --timeout soon
        cancel
        restart
        restart shop --timeout never
        upgrade
        upgrade shop JOB.py --mode sideways
        upgrade shop --dry-run
        upgrade shop JOB.py --within soon
        upgrade shop JOB.py --batches -1
        apply
        apply FILE
        apply CK
        apply WRONG.toml
        cancel shop --timeout never --yes
        checkpoint show LONG
        checkpoint verify CK --home s3://bucket/home
        savepoint take LONG new
        savepoint take CK new --label ''
        savepoint take CK new --keep 3
        savepoint label SP ''
        savepoint label SP x --remove
        savepoint digest
        savepoint gc CK
        savepoint gc empty --dry-run
        state list
        state list CK --batch -1
        state history CK aggregate c1 --savepoints CK
        state explain CK aggregate c1 --batch 1.5
        state migrate CK new --partitions 0
        state migrate CK new --state-format 3
        state migrate CK new --key-groups -1
        state migrate SP new --source
        state migrate SP new --source ''
        state migrate SP new --source =0
        state migrate SP new --source web=
        state migrate SP new --source web=0 --source +
        state migrate SP new --source web=0 --source web=+
        state migrate SP new --source 'w eb=0'
        state migrate SP new --source 0
        state migrate SP new --drop-source 0
        state migrate SP new --table ftp://x/y
        state bootstrap JOB.py new --from FILE
        alerts export --output s3://bucket/rules
        alerts export --output /proc/rules
        alerts list --last -1
        alerts list --last many
        list --home ''
        list --home s3://bucket/home
        tour s3://bucket/tour --yes
        tour /proc/tour --yes
        init s3://bucket/job
        init FILE
        init new --name 'no name'
        init new --name os
        demo --keep s3://bucket/day
        demo --seed one
        doctor --job FILE
        skew CK --top 0
        run JOB.py --ha ftp://x/y
        run JOB.py --ha home --lease 1ms
        run JOB.py --on-damage tomorrow
        run JOB.py --conf 'spark.x' --dry-run
        serve --token-file /dev/zero --port 0
        serve --tls-cert s3://bucket/cert --tls-key FILE
        watch CK --alert x
        watch CK --metrics-port 70000
        check empty --against CK
        check JOB.py --against SP --conf x
        drill SP --set x
        fork SP
        fork SP new --compare JOB.py
        fork SP --compare JOB.py --original JOB.py --batches 0
        rescale SP --partitions 1e3
        restore SP new --nonsense
    """,
}  # fmt: skip


def typed() -> list[tuple[str, int]]:
    return [(line, code) for code, lines in CASES.items() for line in lines_of(lines)]


TYPED: Final = one_in(3, typed())


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """What the cases are typed beside; none may change it."""
    with (
        furnished(tmp_path_factory.mktemp("typed")) as folder,
        socket.socket(socket.AF_UNIX) as bound,
    ):
        (folder / "LOOP").symlink_to("LOOP")
        (folder / "DANGLING").symlink_to("gone")
        os.mkfifo(folder / "PIPE")
        before = Path.cwd()
        os.chdir(folder)  # the path of a socket is short
        bound.bind("SOCKET")
        os.chdir(before)
        yield folder


def test_every_verb_is_tried_more_than_once() -> None:
    lines = [line for line, _ in typed()]
    assert len(lines) >= 150
    assert {verb for verb in leaves() if sum(verb_of(line) == verb for line in lines) < 2} == set()


@pytest.mark.parametrize(("line", "code"), TYPED, ids=[line for line, _ in TYPED])
def test_what_is_wrong_is_told_in_one_message(line: str, code: int, place: Path) -> None:
    before = below(place)
    words = [word.replace("LONG", LONG) for word in words_of(line, place)]
    said = cli_in(place, place / "home")(*words)
    assert said.returncode == code, said.stderr
    assert said.stdout == ""
    told = said.stderr
    assert "Traceback" not in told
    assert "internal error" not in told
    assert told.count("error: ") + told.count("Error: ") + told.count("Usage: ") >= 1
    assert below(place) == before


@pytest.mark.parametrize("word", ["\udcff\udcfe", "CK\udc80"])
@pytest.mark.parametrize("verb", sorted(leaves())[:: 1 if WHOLE else 4])
def test_an_argument_that_is_no_text_is_refused(verb: str, word: str, place: Path) -> None:
    before = below(place)
    said = cli_in(place, place / "home")(*verb.split(), word)
    assert (said.returncode, "not valid UTF-8" in said.stderr) == (WRONG, True)
    assert below(place) == before
