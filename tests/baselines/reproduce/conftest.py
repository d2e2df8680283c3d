"""A paper of two small tables on the digits."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from baselines.reproduce import paper_tables

TABLES = """\
table1:
  experiment: fedexp/common
  metric: accuracy
  reduction: best
  scale: 100
  seeds: 2
  findings:
    - { text: FedExP beats FedAvg, column: method, better: fedexp, worse: fedavg }
  keys:
    rate:
      0.1: client.optimizer.lr=0.1 num_nodes=4 partitioner=iid rounds=4
      0.2: client.optimizer.lr=0.2 num_nodes=4 partitioner=iid rounds=4
    method: { fedavg: strategy=fedavg, fedexp: strategy=fedexp }
figure1:
  experiment: fedexp/common
  metric: loss
  reduction: last
  keys:
    method:
      fedavg: num_nodes=4 partitioner=iid rounds=100
      bad: num_nodes=4 partitioner=iid rounds=100 client.optimizer.lr=-1
"""
PRINTED = """\
rate,method,paper_mean,paper_std
0.2,fedexp,91.5,0.5
0.2,fedavg,90.5,
0.1,fedavg,,
"""


@pytest.fixture
def papers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Return the papers' folder, with the paper ``tiny`` in it."""
    folder = tmp_path / "papers" / "tiny"
    (folder / "tables").mkdir(parents=True)
    (folder / "tables.yaml").write_text(TABLES)
    (folder / "tables" / "table1.csv").write_text(PRINTED)
    monkeypatch.setattr(paper_tables, "PAPERS", tmp_path / "papers")
    paper_tables.tables.cache_clear()
    paper_tables._rows.cache_clear()
    yield tmp_path / "papers"
    paper_tables.tables.cache_clear()
    paper_tables._rows.cache_clear()
