"""Run folders made of a few given searches."""

from cats_jax.live.ledger import Ledger
from cats_jax.live.results import Candidate, SearchResult, path_of
from cats_jax.protocols import Question
from cats_jax.runs.folder import Row, RunWriter, row_key
from cats_jax.storage.manifest import make_manifest


def candidate(identity, parent, step, text, score=None, **fields):
    """A candidate whose path score is its step score."""
    return Candidate(identity, parent, step, 0, identity, text, (), 1, -1.0, score, score, **fields)


def searched(question, text, candidates, chosen=None, status=None, reason=""):
    """A search result whose finished paths are those of the kept candidates that are done.

    Args:
        chosen: id of the chosen path's last candidate.
    """
    by_id = {node.id: node for node in candidates}

    def nodes(node):
        return () if node == 0 else (*nodes(by_id[node].parent), node)

    ends = [node.id for node in candidates if node.kept and node.done]
    answer = None if chosen is None else by_id[chosen].answer
    return SearchResult(
        question=Question(question, text),
        answer=answer,
        chosen=None if chosen is None else ends.index(chosen),
        status=status or ("no_answer" if answer is None else "answered"),
        reason=reason,
        steps=1 + max((node.step for node in candidates), default=-1),
        paths=[path_of(nodes(end), candidates) for end in ends],
        candidates=list(candidates),
        ledger=Ledger(candidates=len(candidates), generated=10),
    )


def finished(question, paths, chosen=None):
    """A search that finished with (answer, score) paths of one step each.

    Args:
        chosen: number of the chosen path, from 1.
    """
    nodes = [
        candidate(i, 0, 0, str(answer), score, done=True, answer=answer, kept=True)
        for i, (answer, score) in enumerate(paths, 1)
    ]
    return searched(question, "?", nodes, chosen)


def row_of(result, gold, strategy="beam", num_candidates=4, prm="exact", seed=0, **fields):
    """The row of a result."""
    answers = [path.answer for path in result.paths]
    values = {
        "meta": {},
        "correct": result.answer == gold,
        "covered": gold in answers,
        **fields,
    }
    return Row(
        key=row_key(strategy, num_candidates, prm, seed, result.question.id),
        question=result.question.id,
        strategy=strategy,
        num_candidates=num_candidates,
        prm=prm,
        seed=seed,
        answer=result.answer,
        gold=gold,
        status=result.status,
        reason=result.reason,
        steps=result.steps,
        ledger=result.ledger,
        **values,
    )


def write_run(folder, searches, *, policy="weak", world="test", trees=True):
    """A run folder of (row, result) pairs; returns the folder."""
    manifest = make_manifest(
        config={
            "name": folder.name,
            "policy": {"path": policy},
            "questions": [{"world": world}],
            "strategies": [],
            "prms": [],
        },
        models={"policy": {"name": policy}},
        questions={"source": "a test", "count": len(searches)},
        seeds=[0],
    )
    with RunWriter(folder, manifest) as writer:
        for row, result in searches:
            writer.add(row, result if trees else None)
    return folder
