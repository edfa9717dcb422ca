"""Trains a PRM with TRL's `PRMTrainer` and has TRL score steps: `python trl_prm.py FOLDER...`.

A script for a process in which TRL can be imported. It imports nothing from the package. Each
folder holds a token classifier in `start`, and `rows.json`: {"separator": text, "train": rows,
"test": rows} with rows of TRL's stepwise supervision, {"prompt", "completions", "labels"}. It
writes the trained model to `trained`, and P(label 1) at each step of each test row to
`scores.json`.
"""

import json
import pathlib
import sys

import torch
from datasets import Dataset
from transformers import AutoModelForTokenClassification, AutoTokenizer
from trl.experimental.prm import PRMConfig, PRMTrainer  # pyright: ignore[reportMissingImports]


def train_and_score(folder: pathlib.Path) -> None:
    given = json.loads((folder / "rows.json").read_text())
    args = PRMConfig(
        output_dir=str(folder / "output"),
        step_separator=given["separator"],
        max_steps=5,
        learning_rate=1e-2,
        bf16=False,
        use_cpu=True,
        report_to="none",
        save_strategy="no",
        disable_tqdm=True,
        seed=1,
    )
    trainer = PRMTrainer(
        model=AutoModelForTokenClassification.from_pretrained(folder / "start"),
        args=args,
        train_dataset=Dataset.from_list(given["train"]),
        eval_dataset=Dataset.from_list(given["test"]),
        processing_class=AutoTokenizer.from_pretrained(folder / "start"),
    )
    trainer.train()
    trainer.save_model(str(folder / "trained"))
    found = trainer.predict(trainer.eval_dataset)
    read = torch.tensor(found.predictions).softmax(-1)[..., 1]
    scores = [
        row[labels != -100].tolist() for row, labels in zip(read, found.label_ids, strict=True)
    ]
    (folder / "scores.json").write_text(json.dumps(scores))


if __name__ == "__main__":
    for name in sys.argv[1:]:
        train_and_score(pathlib.Path(name))
