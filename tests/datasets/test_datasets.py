"""Data sets: published layouts, users' files, the hub, selections, and rows that break a rule."""

import hashlib
import json
import math
import random
import re

import datasets as hub
import datasets.config as hub_config
import pyarrow
import pyarrow.parquet
import pytest
import yaml

from cats_jax.datasets import PUBLISHED, count_questions, load_questions, read_questions
from cats_jax.datasets.digests import math500_ids, text_digest
from cats_jax.errors import BadInputError
from cats_jax.specs.recipe import QuestionSpec, parse_recipe

# One or two rows of each, in the published columns, made up for this test.
_ROWS = {
    "math500": [
        {"problem": "2+2?", "solution": r"$\boxed{4}$", "answer": "4", "subject": "Algebra",
         "level": 1, "unique_id": "test/algebra/1.json"},
    ],
    "math": [
        {"problem": "1/2+1/2?", "level": "Level 1", "type": "Algebra",
         "solution": r"It is $\boxed{\frac{2}{2}}=1$, so $\boxed{1}$."},
        {"problem": "A half?", "level": "Level 1", "type": "Algebra", "solution": r"$\boxed 5$."},
    ],
    "math12k": [
        {"problem": "3+3?", "solution": r"$\boxed{6}$", "answer": "6", "subject": "Algebra",
         "level": 1, "unique_id": "train/algebra/1.json"},
        {"problem": "5+5?", "solution": r"$\boxed{10}$", "answer": "10", "subject": "Algebra",
         "level": 2, "unique_id": "test/algebra/1.json"},
    ],
    "aime24": [
        {"problem": "Find x.", "solution": "...", "extracted_groundtruth": "025",
         "url": "https://example.org/2024_AIME_I_Problems/Problem_1"},
        {"id": 60, "problem": "Find y.", "solution": "...", "answer": "7",
         "url": "https://example.org/2023_AIME_I_Problems/Problem_1"},
        {"id": 61, "problem": "Find y.", "solution": "...", "answer": "204",
         "url": "https://example.org/2024_AIME_II_Problems/Problem_1"},
    ],
    "amc23": [
        {"problem": "How many?", "solution": 27.0, "extracted_groundtruth": 27.0,
         "url": "https://example.org/2023_AMC_12A_Problems/Problem_1"},
    ],
    "gsm8k": [
        {"question": "How much?", "answer": "2*540=<<2*540=1080>>1080\n#### 1,080"},
    ],
    "olympiadbench": [
        {"id": 5, "question": "Solve.", "context": "Let x be real.", "solution": ["..."],
         "final_answer": ["$2$", "$-2$"], "is_multiple_answer": True, "unit": None,
         "answer_type": "Numerical", "error": None, "subfield": "Algebra"},
        {"id": 6, "question": "How far?", "context": None, "solution": ["..."],
         "final_answer": ["4.2"], "is_multiple_answer": False, "unit": "km",
         "answer_type": "Numerical", "error": "1e-1", "subfield": "Geometry"},
    ],
}  # fmt: skip
_EXPECTED = {
    "math500": {"math500/test/algebra/1.json": "4"},
    "math": {"math/0": "1", "math/1": "5"},
    "math12k": {"math12k/train/algebra/1.json": "6", "math12k/test/algebra/1.json": "10"},
    "aime24": {"aime24/0": "25", "aime24/61": "204"},
    "amc23": {"amc23/0": "27"},
    "gsm8k": {"gsm8k/0": "1080"},
    "olympiadbench": {"olympiadbench/5": "2, -2", "olympiadbench/6": "4.2"},
}


_ON_HUB = [name for name, published in PUBLISHED.items() if published.on_hub]


def _jsonl(path, rows):
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


@pytest.mark.parametrize("name", list(PUBLISHED))
@pytest.mark.parametrize("suffix", ["jsonl", "parquet"])
def test_published_layouts_from_files(tmp_path, name, suffix):
    path = tmp_path / f"rows.{suffix}"
    if suffix == "jsonl":
        _jsonl(path, _ROWS[name])
    else:
        # A table has one set of columns: what a row has not is null.
        columns = {column: None for row in _ROWS[name] for column in row}
        rows = [{**columns, **row} for row in _ROWS[name]]
        pyarrow.parquet.write_table(pyarrow.Table.from_pylist(rows), path)
    questions = read_questions(path, layout=name)
    assert questions.answers == _EXPECTED[name]
    assert [question.id for question in questions.questions] == list(_EXPECTED[name])


def test_what_else_is_known_of_a_question(tmp_path):
    questions = read_questions(
        _jsonl(tmp_path / "o.jsonl", _ROWS["olympiadbench"]), layout="olympiadbench"
    )
    assert questions.questions[0].text == "Let x be real.\nSolve."
    assert questions.questions[1].text == "How far?"
    assert questions.tolerances == {"olympiadbench/6": 0.1}
    assert questions.meta["olympiadbench/6"]["unit"] == "km"
    assert "solution" not in questions.meta["olympiadbench/6"]


# Where the published repositories keep their rows: split -> file, by configuration. A card says so,
# except where one file lies at the top.
_REPOSITORIES = {
    "math500": {None: {"test": "test.jsonl"}},
    "math": {
        subject: {split: f"{subject}/{split}-00000-of-00001.parquet" for split in ("train", "test")}
        for subject in PUBLISHED["math"].configs
    },
    "aime24": {None: {"train": "data/train-00000-of-00001.parquet"}},
    "amc23": {None: {"train": "data/train-00000-of-00001.parquet"}},
    "gsm8k": {
        name: {split: f"{name}/{split}-00000-of-00001.parquet" for split in ("train", "test")}
        for name in ("main", "socratic")
    },
    "olympiadbench": {
        name: {"train": f"{name}/{name}.parquet"}
        for name in ("OE_TO_maths_en_COMP", "OE_TO_physics_en_COMP")
    },
}


def _publish(folder, name):
    """The rows as a repository on the hub holds them; each file has rows of its own."""
    card = {"license": "mit", "configs": []}
    for config, files in _REPOSITORIES[name].items():
        parts = []
        for split, file in files.items():
            path = folder / PUBLISHED[name].path / file
            path.parent.mkdir(parents=True, exist_ok=True)
            text = PUBLISHED[name].layout.question[-1]
            row = _ROWS[name][-1]
            row = {**row, text: f"{row[text]} {config}, {split}"}
            if path.suffix == ".jsonl":
                _jsonl(path, [row])
            else:
                pyarrow.parquet.write_table(pyarrow.Table.from_pylist([row]), path)
            parts.append({"split": split, "path": file.replace("00000-of-00001", "*")})
        card["configs"].append({"config_name": config or "default", "data_files": parts})
    if name == "math500":
        del card["configs"]
    text = yaml.safe_dump(card)
    (folder / PUBLISHED[name].path / "README.md").write_text(f"---\n{text}---\n# A data set\n")


@pytest.mark.parametrize("name", _ON_HUB)
def test_published_repositories_through_the_library(tmp_path, monkeypatch, name):
    """`datasets` reads a repository from a folder of its name as it does from the hub."""
    _publish(tmp_path / "hub", name)
    monkeypatch.chdir(tmp_path / "hub")
    monkeypatch.setattr(hub_config, "HF_DATASETS_CACHE", tmp_path / "cache")
    published = PUBLISHED[name]
    loaded = {
        split: load_questions([QuestionSpec(dataset=name, split=split)])
        for split in published.splits
    }
    for split, questions in loaded.items():
        ends = [f"{config}, {split}" for config in published.configs]
        assert len(questions.questions) == len(ends)
        for question, end in zip(questions.questions, ends, strict=True):
            assert question.text.endswith(end)
        expected = list(_EXPECTED[name].values())[-1]
        assert set(questions.answers.values()) == {expected}
        if len(ends) > 1:  # rows without ids are numbered through all configurations
            assert list(questions.answers) == [f"math/{i}" for i in range(7)]
    # The first split is the default, and the name on the hub is another name of the set.
    by_path = load_questions([QuestionSpec(dataset=published.path)])
    assert by_path.questions == loaded[next(iter(published.splits))].questions
    (tmp_path / "hub" / published.path).rename(tmp_path / "elsewhere")
    monkeypatch.setattr(hub_config, "HF_HUB_OFFLINE", True)
    monkeypatch.setattr(hub_config, "HF_DATASETS_CACHE", tmp_path / "empty")
    with pytest.raises(BadInputError, match="can't be loaded") as error:
        load_questions([QuestionSpec(dataset=name)])
    assert "\n" not in str(error.value)


def test_a_hub_that_does_not_answer(monkeypatch):
    def load_dataset(path, config=None, *, split):
        raise ConnectionError("no\nroute")

    monkeypatch.setattr(hub, "load_dataset", load_dataset)
    with pytest.raises(BadInputError, match=r"can't be loaded \(ConnectionError: no route\)") as e:
        load_questions([QuestionSpec(dataset="gsm8k")])
    assert "\n" not in str(e.value)


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        ({"dataset": "gsm8"}, r"unknown data set 'gsm8': did you mean 'gsm8k'"),
        ({"dataset": "imagenet"}, r"unknown data set 'imagenet': known are math500"),
        ({"dataset": "gsm8k", "split": "dev"}, r"no split 'dev': choose test or train"),
        ({"file": __file__}, r"must end in \.jsonl"),
    ],
)
def test_unknown_sets(spec, message):
    with pytest.raises(BadInputError, match=message):
        load_questions([QuestionSpec(**spec)])


@pytest.mark.parametrize(
    ("name", "row", "message"),
    [
        ("gsm8k", {"question": "x", "answer": "5"}, r"must end with a line '#### NUMBER'"),
        ("gsm8k", {"qestion": "x", "answer": "5"}, r"'question' is missing: did you mean 'qes"),
        ("math", {"problem": "x", "solution": "none"}, r"holds no closed"),
        ("math", {"problem": "x", "solution": None}, r"must be a text"),
        ("math500", {"problem": "x"}, r"column 'answer' is missing"),
        ("math500", {"problem": " ", "answer": "1"}, r"'problem' must be a text that is not blank"),
        ("aime24", {"problem": "x", "answer": "1/2"}, r"must be an integer, got '1/2'"),
        ("olympiadbench", {"question": "x", "final_answer": []}, r"'final_answer' must be"),
        ("aime24", {"problem": "x", "answer": "9" * 5000}, r"an integer, got '9{79}\.\.\.9{19}'"),
        ("olympiadbench", {"question": "x", "final_answer": ["1"], "error": "a"}, r"'error' must"),
        ("olympiadbench", {"question": "x", "final_answer": ["1"], "error": "inf"}, r"at least 0"),
        ("olympiadbench", {"question": "x", "final_answer": ["1"], "error": -1}, r"at least 0"),
        ("olympiadbench", {"question": "x", "final_answer": ["1"], "error": True}, r"at least 0"),
        ("olympiadbench", {"question": "x", "final_answer": ["1"], "error": 10**400}, r"at least"),
        ("gsm8k", {"question": "\ud83d x", "answer": "#### 5"}, r"'question' holds half of a char"),
        ("olympiadbench", {"id": "\udc01", "question": "x", "final_answer": ["1"]}, r"'id' holds"),
        ("olympiadbench", {"id": 1.5, "question": "x", "final_answer": ["1"]}, r"whole .* 1\.5"),
        ("olympiadbench", {"id": 5, "question": "x", "final_answer": ["1"]}, r"first at .*jsonl:1"),
    ],
)  # fmt: skip
def test_bad_rows_are_named_by_file_and_line(tmp_path, name, row, message):
    path = _jsonl(tmp_path / "rows.jsonl", [*_ROWS[name], row])
    with pytest.raises(BadInputError, match=rf"rows\.jsonl:{len(_ROWS[name]) + 1}: .*{message}"):
        read_questions(path, layout=name)


_LINE = '{"question": "Où est x?", "answer": "½"}\n'


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (_LINE.encode() + _LINE.encode("latin-1"), r":2: not UTF-8 .*iconv -f ISO-8859-1 -t UTF-8"),
        (_LINE.encode("utf-16"), r":1: not UTF-8 .*iconv -f UTF-16 -t UTF-8"),
        (_LINE.replace("ù", "u").replace("½", "1").encode("utf-16-le"), r":1: not UTF-8 .*UTF-16"),
        (b"[\n{}]\n", r":1: .*over several lines.*write one object a line"),
        (b"[{}]\n", r":1: the line is a list: .*jq -c"),
        (_LINE.encode() + b'{"question": ', r":2: not a JSON object \(Expecting value at column"),
        (b'{"answer": ' + b"1" * 5000 + b"}", r":1: not a JSON object .*4300"),
        (b" \n\n", r"q\.jsonl has no rows: write a question a line, such as \{"),
    ],
)
def test_bad_files_are_named_with_the_way_out(tmp_path, content, message):
    path = tmp_path / "q.jsonl"
    path.write_bytes(content)
    with pytest.raises(BadInputError, match=message) as error:
        read_questions(path)
    assert "\n" not in str(error.value)


def test_a_file_that_cannot_be_read(tmp_path, monkeypatch):
    path = _jsonl(tmp_path / "q.jsonl", [{"question": "x", "answer": 1}])

    def refuse(*arguments):
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(type(path), "open", refuse)
    with pytest.raises(BadInputError, match=r"q\.jsonl' can't be read \(Permission denied\)"):
        read_questions(path)


_LAYOUT_OF_CASE = {"aime": "aime24", "amc": "amc23", "gsm8k": "gsm8k", "math": "math",
                   "olympiad": "olympiadbench"}  # fmt: skip


def test_the_recorded_files(shared):
    """Files as users have them: how many questions each gives, or an error with file and line."""
    for line in shared("cases/data_files.jsonl").read_text().splitlines():
        case = json.loads(line)
        path = shared(f"cases/{case['file']}")
        if isinstance(case["expected"], int):
            found = read_questions(path, layout=_LAYOUT_OF_CASE.get(path.stem))
            assert len(found.questions) == case["expected"], path
        else:
            with pytest.raises(BadInputError, match=rf"^{re.escape(str(path))}:\d+: ") as error:
                read_questions(path, layout=_LAYOUT_OF_CASE.get(path.stem))
            str(error.value).encode()


def test_bad_parquet(tmp_path):
    path = tmp_path / "rows.parquet"
    path.write_text("not a table")
    with pytest.raises(BadInputError, match="can't be read as Parquet"):
        read_questions(path)
    pyarrow.parquet.write_table(pyarrow.Table.from_pylist([{"question": "x", "answer": " "}]), path)
    with pytest.raises(BadInputError, match=r"rows\.parquet, row 1: 'answer' must be"):
        read_questions(path)


# The training split


def test_a_question_of_math500_in_the_training_split_is_named_by_its_row(tmp_path):
    row = {"problem": "?", "answer": "x", "unique_id": "test/precalculus/807.json"}
    path = _jsonl(tmp_path / "rows.jsonl", [*_ROWS["math12k"], row])
    with pytest.raises(
        BadInputError, match=r"rows\.jsonl:3: this is test/precalculus/807\.json of MATH-500, which"
    ):
        read_questions(path, layout="math12k")


def test_the_training_split_is_read_from_a_file_only(monkeypatch):
    monkeypatch.delattr(hub, "load_dataset")
    for read in (count_questions, lambda spec: load_questions([spec])):
        with pytest.raises(BadInputError, match=r"from a file only: get prm800k/math_splits/train"):
            read(QuestionSpec(dataset="math12k"))


def test_every_question_of_math500_is_known(real_data, tmp_path):
    """By its text and by its id, in the published copy."""
    rows = [json.loads(line) for line in real_data("math500.jsonl").read_text().splitlines()]
    assert len(math500_ids()) == len(rows) == 500
    for row in rows:
        assert math500_ids()[text_digest(row["problem"])] == row["unique_id"]
    for row in random.Random(0).sample(rows, 5):
        for copy in (
            row,
            {"problem": row["problem"], "answer": "x"},
            {"problem": "\n".join(["", *row["problem"].split(" "), ""]), "answer": "x"},
        ):
            with pytest.raises(BadInputError, match=f"jsonl:1: this is {row['unique_id']} of MATH"):
                read_questions(_jsonl(tmp_path / "rows.jsonl", [copy]), layout="math12k")


def test_digests_do_not_see_white_space():
    def known(text):
        return hashlib.sha256(text.encode()).hexdigest()[:16]

    assert text_digest("  What is\n$1+1$?\t") == text_digest("What is $1+1$?")
    # What the shipped controllers know questions by.
    assert text_digest("((50*4)-21)+15=?") == known("((50*4)-21)+15=?")
    assert text_digest("What is$1+1$?") != text_digest("What is $1+1$?")


# Users' files


def test_a_users_file(tmp_path):
    row = {"id": "a", "question": "1+1", "answer": 2}
    rows = [
        {**row, "level": 3, "solution": "x" * 1000, "p": math.nan},
        {"id": 7, "question": "2+2", "answer": "4"},
    ]
    path = tmp_path / "q.jsonl"
    path.write_text("\n".join(map(json.dumps, rows)) + "\n\n")
    questions = read_questions(path)
    assert [(q.id, q.text) for q in questions.questions] == [("a", "1+1"), ("7", "2+2")]
    assert questions.answers == {"a": "2", "7": "4"}
    assert questions.meta["a"] == {"level": 3}


@pytest.mark.parametrize(
    ("layout", "row", "answer"),
    [
        ("olympiadbench", {"question": "x", "final_answer": [r"\$5"]}, r"\$5"),
        ("olympiadbench", {"question": "x", "final_answer": ["$(1,2)$"]}, "(1,2)"),
        ("gsm8k", {"question": "x", "answer": "#### 1,234"}, "1234"),
        ("gsm8k", {"question": "x", "answer": "#### 1,2"}, "1,2"),
        (None, {"question": "x", "answer": ["1,234", "5"]}, "1,234; 5"),
        (None, {"question": "x", "answer": ["12", 144]}, "12, 144"),
    ],
)
def test_gold_answers_keep_their_commas_and_prices(tmp_path, layout, row, answer):
    questions = read_questions(_jsonl(tmp_path / "rows.jsonl", [row]), layout=layout)
    assert list(questions.answers.values()) == [answer]


def test_the_answers_of_a_users_file_may_be_solutions(tmp_path):
    answers = {
        "2*540=<<2*540=1080>>1080\n#### 1,080": "1,080",
        r"It is $\boxed{\frac12}$, or half.": r"\frac12",
        "Half of it": "Half of it",
    }
    rows = [{"question": "How much?", "answer": solution} for solution in answers]
    found = read_questions(_jsonl(tmp_path / "q.jsonl", rows)).answers
    assert list(found.values()) == list(answers.values())


def test_a_users_columns(tmp_path):
    rows = [{"Q": "1+1", "gold": [1, "2"]}, {"Q": "2+2", "gold": 4.0, "answer": "a"}]
    path = _jsonl(tmp_path / "q.jsonl", rows)
    spec = QuestionSpec(file=str(path), question_column="Q", answer_column="gold")
    questions = load_questions([spec])
    assert questions.answers == {"0": "1, 2", "1": "4"}
    assert questions.meta == {"0": {}, "1": {"answer": "a"}}  # no gold answer, and what is none


@pytest.mark.parametrize(
    ("columns", "message"),
    [
        (
            {},
            r"q.jsonl:1: column 'question' is missing: .*known are Q, gold;.* key question_column",
        ),
        ({"question_column": "Q"}, r"column 'answer' is missing: .*; .* by the key answer_column"),
        ({"question_column": "QQ", "answer_column": "gold"}, r"column 'QQ' is missing"),
        (
            {"question_column": "Q", "answer_column": "gold", "id_column": "idx"},
            r"column 'idx' is missing: .* by the key id_column",
        ),
    ],
)
def test_a_missing_column_of_a_users_file_names_the_key(tmp_path, columns, message):
    path = _jsonl(tmp_path / "q.jsonl", [{"Q": "1+1", "gold": "2"}])
    with pytest.raises(BadInputError, match=message):
        load_questions([QuestionSpec(file=str(path), **columns)])


# Selections


def test_slices_and_shuffles(tmp_path):
    rows = [{"question": f"{i}+0", "answer": i} for i in range(20)]
    path = str(_jsonl(tmp_path / "q.jsonl", rows))

    def ids(**choice):
        return [q.id for q in load_questions([QuestionSpec(file=path, **choice)]).questions]

    everything = [str(i) for i in range(20)]
    assert ids() == everything
    assert ids(start=5, count=3) == ["5", "6", "7"]
    assert ids(start=18, count=9) == ["18", "19"]
    shuffled = ids(shuffle=0)
    assert sorted(shuffled, key=int) == everything
    assert shuffled not in (everything, ids(shuffle=1))
    random.Random("cats-jax questions 0").shuffle(everything)
    assert shuffled == everything  # the same on every machine
    assert ids(shuffle=0, count=4) == shuffled[:4]
    assert ids(shuffle=0, start=4, count=4) == shuffled[4:8]
    chosen = load_questions([QuestionSpec(file=path, shuffle=0, count=4)])
    assert set(chosen.answers) == set(chosen.meta) == set(shuffled[:4])
    assert chosen.source == f"{path}, shuffled by 0, rows 1 to 4"
    with pytest.raises(BadInputError, match="start=20 leaves none"):
        ids(start=20)


def test_counting_downloads_nothing(monkeypatch, tmp_path):
    monkeypatch.delattr(hub, "load_dataset")
    assert count_questions(QuestionSpec(dataset="math500")) == (500, ())
    assert count_questions(QuestionSpec(dataset="gsm8k", split="train", start=7000)) == (473, ())
    assert count_questions(QuestionSpec(dataset="aime24", count=5)) == (5, ())
    assert count_questions(QuestionSpec(world="test", count=7)) == (7, ())
    path = _jsonl(tmp_path / "q.jsonl", [{"question": "x", "answer": 1}] * 3)
    assert count_questions(QuestionSpec(file=str(path), start=1)) == (2, ())


def test_a_count_beyond_the_rows_is_said(tmp_path):
    path = _jsonl(tmp_path / "q.jsonl", [{"question": "x", "answer": 1}] * 3)
    too_many = QuestionSpec(file=str(path), start=1, count=300)
    note = f"questions: {path} has 2 rows from start 1 on, fewer than count 300: all are taken"
    assert load_questions([too_many]).notes == (note,)
    assert count_questions(too_many) == (2, (note,))
    published = QuestionSpec(dataset="aime24", count=31)
    assert count_questions(published)[0] == 30
    assert "has 30 rows, fewer than count 31" in count_questions(published)[1][0]
    exact = QuestionSpec(file=str(path), label="b", count=3)
    assert load_questions([exact]).notes == count_questions(exact)[1] == ()
    beyond = QuestionSpec(dataset="aime24", start=30)
    with pytest.raises(BadInputError, match="start=30 leaves none"):
        count_questions(beyond)


def test_several_sets(tmp_path):
    one = _jsonl(tmp_path / "one.jsonl", [{"id": "a", "question": "1", "answer": 1}])
    two = _jsonl(tmp_path / "two.jsonl", [{"id": "b", "question": "2", "answer": 2}])
    recipe = parse_recipe(
        {"name": "n", "strategies": ["greedy"], "num_candidates": 4,
         "questions": [{"file": str(one)}, {"file": str(two), "label": "second"}]}
    )  # fmt: skip
    questions = load_questions(recipe.questions)
    assert questions.datasets == {"a": "one", "b": "second"}
    assert questions.answers == {"a": "1", "b": "2"}
    single = load_questions(recipe.questions[:1])
    assert single.datasets == {}
    assert single.fingerprint() != questions.fingerprint()


def test_fingerprints_tell_tolerances_apart(tmp_path):
    rows = _ROWS["olympiadbench"]
    exact = [{**row, "error": None} for row in rows]
    prints = [
        read_questions(_jsonl(tmp_path / "o.jsonl", one), layout="olympiadbench").fingerprint()
        for one in (rows, exact)
    ]
    assert prints[0]["sha256"] == prints[1]["sha256"]
    assert prints[0]["answers_sha256"] != prints[1]["answers_sha256"]


# Real copies


_REAL = {
    "math500.jsonl": ("math500", 500),
    "aime24.jsonl": ("aime24", 30),
    "amc23.jsonl": ("amc23", 40),
    "gsm8k_train.jsonl": ("gsm8k", 7473),
    "gsm8k_test.jsonl": ("gsm8k", 1319),
    "olympiadbench_oe_to_maths_en_comp.jsonl": ("olympiadbench", 675),
}


@pytest.mark.parametrize("file", _REAL)
def test_real_copies(file, real_data):
    layout, count = _REAL[file]
    questions = read_questions(real_data(file), layout=layout)
    assert len(questions.questions) == len(questions.answers) == count
    published = 674 if layout == "olympiadbench" else count  # the copy has a row more, see docs
    assert published in PUBLISHED[layout].splits.values()
    if layout in ("aime24", "amc23", "gsm8k"):
        assert all(answer.lstrip("-").isdigit() for answer in questions.answers.values())
    if layout == "olympiadbench":
        assert list(questions.tolerances.values()) == [0.1]
