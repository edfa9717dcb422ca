"""A Hugging Face causal model from a local folder, run on key-value buffers this package owns.

The forward pass is the transformers model's own, so any architecture with a plain key-value cache
works. The cache and the attention function use transformers' extension points, see `parts`. The
widths of all arrays of attention follow from a row's own length, never from its neighbours'; so
fp32 results on a CPU are bitwise the same in any batch.
"""

from __future__ import annotations

import contextlib
import itertools
import math
import pathlib
import time
from collections.abc import Iterator, Sequence
from typing import Any, TypedDict

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor
from transformers import AutoConfig, AutoModelForCausalLM, GenerationConfig
from transformers.cache_utils import Cache
from transformers.utils import logging as transformers_logging

from ...errors import BadInputError
from ...protocols import Question
from ..adapter import Adapter
from ..folders import check_model_folder
from ..hub import folder_name
from ..local_files import LOCAL_FILES, read_config, reason_of
from ..prompts.policy_encoder import PromptEncoder
from ..prompts.policy_format import AUTO, PolicyFormat, choose_format
from ..threads import default_threads
from ..weights import num_values
from .attention import check_computable, layer_masks, mask_argument, rotates_by_length
from .parts import ATTENTION, BufferLayer, LineLayer, Part, attended
from .prefix_cache import PrefixCache, Segment, cache_bytes
from .token_budget import is_out_of_memory
from .tokenizer import load_tokenizer

WIDTH = 32
"""Cached prefixes are padded to a multiple of this many columns, by which buffers grow, too."""

CHUNK_WIDTH = 8
"""Chunks of new tokens are padded to a multiple of this many columns."""

# For few rows, BLAS uses other kernels, whose results differ in the last bit. How few depends on
# the processor: 1 to 3 rows with MKL on AVX-512, up to 10 with AMX beside it (for 256 inputs). No
# product on the CPU has fewer rows than this.
_MIN_CPU_ROWS = 16

# torch's silu rounds the elements after the last whole 32 differently, so a row's result would
# depend on its place. A multiple of 4 rows, with widths in multiples of 8, leaves no such elements.
_CPU_ROWS_MULTIPLE = 4

# Largest relative difference of logits by rounding, in bfloat16. Rows that meet outside attention
# differ by more.
_SAME = 0.1

_DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16}

_SIZES = (
    "max_position_embeddings", "vocab_size", "num_hidden_layers", "num_attention_heads",
    "hidden_size",
)  # fmt: skip
"""What a configuration must name."""

_OTHER_HEADS = ("ForSequenceClassification", "ForTokenClassification", "RewardModel", "PrmModel")
"""Some endings of the names of architectures whose head writes no text."""


class LoadOptions(TypedDict, total=False):
    """Arguments of `CausalModel` by which its weights are loaded."""

    device: str
    dtype: str
    num_threads: int | None
    kv_cache_gib: float | None
    adapter: str | pathlib.Path | None


def padded(length: int, multiple: int) -> int:
    """`length` rounded up to a multiple of `multiple`."""
    return -(-length // multiple) * multiple


class CausalModel:
    """A causal language model with its tokenizer, in evaluation mode on one device.

    Args:
        path: model folder, or id of the hub that is in its cache; nothing is ever downloaded.
        device: "cpu", "cuda" or "cuda:N".
        dtype: "float32" or "bfloat16", of weights and cached keys and values.
        num_threads: torch's threads for work inside an operator; None takes `default_threads`.
            Bitwise equality is only known for one.
        kv_cache_gib: bound of the cache of keys and values in GiB (2**30 bytes), > 0; None takes
            `footprint.FREE_SHARE` of the memory that is free after the weights are loaded, see
            `footprint.device_memory`. Micro-batches need memory besides: copies of up to
            `batch_tokens` tokens, and new ones.
        format: policy format of the questions, see `choose_format`. None for a model that gets no
            questions; its tokenizer needs no chat template.
        adapter: folder of a LoRA adapter that is merged into the weights, see `models.adapter`.

    Attributes:
        name: name of the folder, see `folder_name`; with an adapter, "FOLDER+ADAPTER".
        adapter: the `Adapter`, or None.
        format: the `PolicyFormat` that was chosen; not set if the argument is None.
        num_parameters: number of parameters, a tied tensor counted once; set by `load_weights`.
        config: the transformers configuration of the whole model.
        text_config: the configuration of the language model in it.
        own_context: largest number of tokens in a sequence that the model allows.
        context: the largest number that is used, `own_context` unless `limit_context` lowers it.
        vocab_size: width of the logits.
        kv_bytes_per_token: bytes of one token's keys and values.
        seconds: time spent in forward passes and in blocks under `timed`.

    Raises:
        BadInputError: an argument can't work; no weight was read.
    """

    def __init__(
        self,
        path: str | pathlib.Path,
        *,
        device: str = "cpu",
        dtype: str = "float32",
        num_threads: int | None = None,
        kv_cache_gib: float | None = None,
        format: str | PolicyFormat | None = AUTO,
        adapter: str | pathlib.Path | None = None,
    ):
        # `from_pretrained` would take a wrong path for the id of a model on the hub.
        folder = check_model_folder(path).resolve()
        self.device = _check_device(device)
        if dtype not in _DTYPES:
            raise BadInputError(f"dtype {dtype!r} is unknown: use one of {', '.join(_DTYPES)}")
        self.dtype = _DTYPES[dtype]
        self.name = folder_name(folder)
        read_config(folder)
        with _reading(folder):
            self.tokenizer: Any = load_tokenizer(folder)
            config: Any = AutoConfig.from_pretrained(folder, **LOCAL_FILES)
        self._prompts: PromptEncoder | None = None
        self.config = config
        self._folder = folder
        if format is not None:
            self.check_language_model()
            self.format = choose_format(format, self.tokenizer.get_vocab())
            self._prompts = PromptEncoder(self.format, self.tokenizer)
        self.text_config = config = _text_config(folder, config)
        self.context = self.own_context = int(config.max_position_embeddings)
        self.vocab_size = int(config.vocab_size)
        self.seconds = 0.0
        self._head_input: Tensor | None = None  # of the last pass, after `watch_head`
        self._hidden: list[Tensor] = []
        self._in_line: bool | None = None
        on_cpu = self.device.type == "cpu"
        self._min_rows = _MIN_CPU_ROWS if on_cpu else 1
        self._rows_multiple = _CPU_ROWS_MULTIPLE if on_cpu else 1
        self._num_layers = int(config.num_hidden_layers)
        heads = int(config.num_attention_heads)
        self._num_heads = int(getattr(config, "num_key_value_heads", None) or heads)
        self._head_dim = int(getattr(config, "head_dim", None) or config.hidden_size // heads)
        planes = 2 * self._num_layers
        self.kv_bytes_per_token = planes * self._num_heads * self._head_dim * self.dtype.itemsize
        _check_bound(kv_cache_gib, self.kv_bytes_per_token)
        self._kv_cache_gib = kv_cache_gib
        self._num_threads = num_threads
        self.adapter = None if adapter is None else Adapter(adapter, folder)
        if self.adapter is not None:
            self.name += f"+{folder_name(self.adapter.folder)}"

    @property
    def architectures(self) -> list[str]:
        """Names of the model's classes in its config.json."""
        return list(self.config.architectures or ())

    def check_language_model(self) -> None:
        """Raises BadInputError if the model was trained with another head than a language model's.

        Its next tokens mean nothing then, even if the weights of a language model's head are there.
        """
        named = self.architectures
        if named and all(name.endswith(_OTHER_HEADS) for name in named):
            raise BadInputError(
                f"{str(self._folder)!r} ({', '.join(named)}) was trained with another head than a "
                "language model's: give a language model, or a PRM with the format that reads this "
                "head"
            )

    def limit_context(self, max_model_len: int | None) -> None:
        """Lower `context` to a number of tokens; None leaves it.

        Raises:
            BadInputError: the model has fewer.
        """
        if max_model_len is None:
            return
        if max_model_len > self.own_context:
            raise BadInputError(
                f"max_model_len={max_model_len} of {str(self._folder)!r}: the model has a context "
                f"of {self.own_context} tokens: give at most that"
            )
        self.context = max_model_len

    def check_computable(self) -> None:
        """Raises BadInputError if a layer attends in a way that `forward` does not compute."""
        check_computable(self.text_config, self._folder)

    def load_weights(self, auto_class: Any = AutoModelForCausalLM) -> None:
        """Reads the weights; a separate method, so that callers can check their input first.

        Args:
            auto_class: class of transformers; `AutoModel` loads no language-model head.

        Raises:
            BadInputError: a tensor is missing; or see `check_computable` and `Adapter.merged`.
        """
        self.check_computable()
        # Before transformers allocates the layers: all of them can have weights.
        width, stored = int(self.text_config.hidden_size), num_values(self._folder)
        if self._num_layers * width > stored:
            raise BadInputError(
                f"{str(self._folder)!r}: config.json names {self._num_layers} layers of width "
                f"{width}, for which {stored} stored numbers are too few: check that config.json "
                "belongs to these weights"
            )
        with _reading(self._folder):
            if self._num_threads is None:
                self._num_threads = default_threads(self._folder, self.device.type)
            loaded: Any = auto_class.from_pretrained(
                self._folder,
                config=self.config,
                dtype=self.dtype,
                attn_implementation=ATTENTION,
                use_safetensors=True,
                output_loading_info=True,
                **LOCAL_FILES,
            )
        self.model, info = loaded
        if info["missing_keys"]:
            # transformers would continue with random numbers in their place.
            name = min(info["missing_keys"])
            raise BadInputError(
                f"{str(self._folder)!r} lacks {len(info['missing_keys'])} of the model's tensors, "
                f"{name!r} among them: check that config.json belongs to these weights"
            )
        if self.adapter is not None:
            self.adapter.merge_into(self.model)
        self.model.to(self.device).eval()
        self.num_parameters = sum(p.numel() for p in self.model.parameters())

    def new_cache(self) -> PrefixCache:
        """An empty prefix cache of this model's shape; load the weights first."""
        return PrefixCache(
            2 * self._num_layers,
            self._num_heads,
            self._head_dim,
            self.dtype,
            self.device,
            cache_bytes(self._kv_cache_gib, self.device),
        )

    def prompt_ids(self, question: Question) -> tuple[int, ...]:
        """Token ids of a question's prompt.

        Raises:
            BadInputError: there are fewer than two, or one is outside the vocabulary.
        """
        assert self._prompts is not None
        ids = self._prompts.prompt_ids(question.text, question.system)
        if len(ids) < 2:
            raise BadInputError(
                f"question {question.id!r} has {len(ids)} prompt tokens under the chat template "
                f"of {self.name!r}, at least 2 are needed: check the question and the template"
            )
        if max(ids) >= self.vocab_size:
            raise BadInputError(
                f"question {question.id!r} has the token {max(ids)} in its prompt, but the "
                f"vocabulary of {self.name!r} ends at {self.vocab_size}: take model and tokenizer "
                "from one release"
            )
        return ids

    def text_ids(self, text: str) -> tuple[int, ...]:
        """Token ids of a text that a format puts into an answer."""
        assert self._prompts is not None
        return self._prompts.text_ids(text)

    def check_prompt(self, question: Question) -> int:
        """Number of tokens of a question's prompt.

        Raises:
            BadInputError: the prompt is too short, or leaves no room in the context.
        """
        length = len(self.prompt_ids(question))
        if length < self.context:
            return length
        more = f"raise max_model_len (the model has {self.own_context}), or "
        raise BadInputError(
            f"question {question.id!r} has {length} prompt tokens, {self.name} has a context of "
            f"{self.context}: {more if self.context < self.own_context else ''}shorten or drop "
            "the question"
        )

    def decode(self, ids: Sequence[int]) -> str:
        """Text of token ids, special tokens included."""
        # The backend itself where there is one: transformers' wrapper costs ten times as much.
        backend = getattr(self.tokenizer, "backend_tokenizer", None)
        if backend is not None:
            return backend.decode(list(ids), skip_special_tokens=False)
        return self.tokenizer.decode(list(ids), clean_up_tokenization_spaces=False)

    def end_ids(self) -> list[int]:
        """Ids that end an answer, ascending: of format, tokenizer, config and generation config."""
        found: set[int] = set() if self._prompts is None else set(self._prompts.end_ids)
        sources = [self.tokenizer, self.config, self.text_config]
        if (self._folder / "generation_config.json").is_file():
            with _reading(self._folder):
                sources.append(
                    GenerationConfig.from_pretrained(self._folder, local_files_only=True)
                )
        for source in sources:
            ids = getattr(source, "eos_token_id", None)
            found.update([ids] if isinstance(ids, int) else ids or [])
        return sorted(token for token in found if 0 <= token < self.vocab_size)

    @contextlib.contextmanager
    def timed(self) -> Iterator[None]:
        """Runs the block with this model's threads; adds its time, GPU included, to `seconds`."""
        start = time.perf_counter()
        if self._num_threads is not None and torch.get_num_threads() != self._num_threads:
            torch.set_num_threads(self._num_threads)
        yield
        if self.device.type == "cuda":
            torch.cuda.synchronize(self.device)
        self.seconds += time.perf_counter() - start

    def forward(
        self, parts: Sequence[Part], tokens: Tensor, positions: Tensor, *, keep: int = 1
    ) -> Tensor:
        """Runs new tokens on top of cached ones and writes their keys and values into the parts.

        The tokens of all parts are one sequence to the model, and only attention is computed part
        by part, see `parts`. A model for which this is wrong runs once for each part.

        Args:
            parts: what the tokens see, in their order.
            tokens, positions: i64[T], the parts' new tokens and their positions in the sequences.
            keep: number of last tokens of each row whose logits are returned.

        Returns:
            Their logits, row by row and part by part, [rows x keep, V] in the model's dtype.
        """
        if self._in_line is None:
            self._in_line = self._goes_in_line()
        self._hidden = []
        with self.timed():
            if self._in_line:
                return self._run_line(parts, tokens, positions, keep)[0]
            starts = [0, *itertools.accumulate(part.num_tokens for part in parts)]
            return torch.cat(
                [
                    self._run_part(part, tokens[start:stop], positions[start:stop], keep)
                    for part, (start, stop) in zip(parts, itertools.pairwise(starts), strict=True)
                ]
            )

    def watch_head(self) -> None:
        """Make `hidden` known after each `forward`."""
        if self._head_input is None:
            self._head_input = torch.empty(0)
            self.model.get_output_embeddings().register_forward_pre_hook(self._note_head_input)

    @property
    def hidden(self) -> Tensor:
        """Last hidden states, which give the logits of the last `forward`, [rows x keep, H]."""
        return torch.cat(self._hidden)

    def _note_head_input(self, module: Any, inputs: tuple[Tensor, ...]) -> None:
        self._head_input = inputs[0]

    def _run_line(
        self, parts: Sequence[Part], tokens: Tensor, positions: Tensor, keep: int
    ) -> tuple[Tensor, list[LineLayer]]:
        """One pass over the tokens of all parts: the logits of `forward`, and the cache's layers.

        Products with few rows are filled up with tokens that attend to nothing.
        """
        layers = [LineLayer(parts, layer) for layer in range(self._num_layers)]
        kept: list[int] = []
        count = 0
        for part in parts:
            columns = np.arange(count, count + part.num_tokens).reshape(-1, part.queries)
            kept += columns[:, part.queries - keep :].ravel().tolist()
            count += part.num_tokens
        places = torch.tensor(kept + kept[:1] * (self._num_filled(len(kept)) - len(kept)))
        more = self._num_filled(count) - count
        cached: list[Any] = [*layers]
        logits = self.model(
            input_ids=F.pad(tokens, (0, more))[None],
            position_ids=F.pad(positions, (0, more))[None],
            # transformers makes masks of its own if it gets none. No layer reads this one.
            attention_mask=torch.zeros((1, 1, 1, 1), dtype=self.dtype, device=self.device),
            past_key_values=Cache(layers=cached),
            use_cache=True,
            logits_to_keep=places.to(self.device),
            line=layers,
        ).logits
        if self._head_input is not None:
            self._hidden.append(self._head_input[0, : len(kept)])
        return logits[0, : len(kept)], layers

    def _run_part(self, part: Part, tokens: Tensor, positions: Tensor, keep: int) -> Tensor:
        """One pass over the rows of a part. Copies of the first row fill up small products."""
        rows, queries = part.rows, part.queries
        filled = (
            self._num_filled(rows) if queries == 1 else max(rows, -(-self._min_rows // queries))
        )
        index = torch.tensor([*range(rows), *[0] * (filled - rows)], device=self.device)
        kv = part.kv if filled == rows else part.kv[:, index]
        layers: list[Any] = [
            BufferLayer(kv[2 * layer], kv[2 * layer + 1], part.column)
            for layer in range(self._num_layers)
        ]
        logits = self.model(
            input_ids=tokens.view(rows, queries)[index],
            position_ids=positions.view(rows, queries)[index],
            attention_mask=mask_argument([mask[index] for mask in part.masks], self.text_config),
            past_key_values=Cache(layers=layers),
            use_cache=True,
            # The head is a product of its own, with one row per kept column.
            logits_to_keep=keep if filled >= self._min_rows else queries,
        ).logits
        if not all(layer.written for layer in layers):
            raise BadInputError(
                f"{str(self._folder)!r}: a layer of model type {self.config.model_type!r} keeps "
                "other things than keys and values, which the backend hf does not compute: set "
                "backend: vllm, or take another model"
            )
        if kv is not part.kv:
            columns = slice(part.column, part.column + queries)
            part.kv[:, :, :, columns] = kv[:, :rows, :, columns]
        if self._head_input is not None:
            self._hidden.append(self._head_input[:rows, -keep:].flatten(0, 1))
        return logits[:rows, -keep:].flatten(0, 1)

    def _goes_in_line(self) -> bool:
        """Whether tokens of different rows meet in attention only, and `parts` computes all of it.

        A short pass is run in both ways. Rotations that depend on a pass's longest text tie rows,
        too.
        """
        if rotates_by_length(self.text_config):
            return False
        mask = torch.zeros((1, 1, 8, 16), dtype=self.dtype, device=self.device)
        shape = (2 * self._num_layers, 1, self._num_heads, 16, self._head_dim)
        parts = [self.part(mask.new_zeros(shape), 8, mask) for _ in range(2)]
        places = torch.arange(8, 16, device=self.device).repeat(2)
        tokens = torch.arange(16, device=self.device) % self.vocab_size
        try:
            in_line, layers = self._run_line(parts, tokens, places, 1)
        except Exception as error:  # whatever an architecture raises on unexpected input
            if is_out_of_memory(error):
                raise
            return False
        if not attended(layers):
            return False
        apart = [
            self._run_part(part, some, places[:8], 1)
            for part, some in zip(parts, tokens.split(8), strict=True)
        ]
        difference = (in_line - torch.cat(apart)).float().norm()
        return bool(difference <= _SAME * in_line.float().norm())

    def part(self, kv: Tensor, column: int, mask: Tensor) -> Part:
        """A part of a batch; `mask` is the one without a window, [B, 1, Q, W]."""
        return Part(kv, column, layer_masks(mask, self.text_config, self._num_layers))

    def extend(
        self,
        cache: PrefixCache,
        prefixes: Sequence[Segment | None],
        chunks: Sequence[tuple[int, ...]],
    ) -> tuple[Tensor, list[Tensor]]:
        """Computes one chunk of tokens on top of each cached prefix, in one pass.

        Args:
            cache, prefixes: the cache, and the ends of B cached paths in it; None is the empty
                path.
            chunks: B non-empty chunks.

        Returns:
            The logits at each chunk's last token, [B, V], and each chunk's keys and values,
            [planes, heads, tokens, dim].
        """
        groups: dict[tuple[int, int], list[int]] = {}
        for row, (prefix, chunk) in enumerate(zip(prefixes, chunks, strict=True)):
            length = 0 if prefix is None else len(prefix)
            widths = (padded(length, WIDTH), padded(len(chunk), CHUNK_WIDTH))
            groups.setdefault(widths, []).append(row)
        parts: list[Part] = []
        tokens: list[np.ndarray] = []
        positions: list[np.ndarray] = []
        order: list[int] = []
        own: list[Tensor] = [torch.empty(0)] * len(chunks)
        for (prefix_width, chunk_width), rows in sorted(groups.items()):
            some = [prefixes[row] for row in rows]
            new = [chunks[row] for row in rows]
            own_tokens, places, seen_by = _left_padded(some, new, prefix_width, chunk_width)
            tokens.append(own_tokens.reshape(-1))
            positions.append(places.reshape(-1))
            mask = torch.zeros(seen_by.shape, dtype=self.dtype, device=self.device)
            mask.masked_fill_(~self._tensor(seen_by), -torch.inf)
            kv = cache.gather(some, prefix_width, prefix_width + chunk_width)
            parts.append(self.part(kv, prefix_width, mask[:, None]))
            order += rows
            for place, row in enumerate(rows):
                own[row] = kv[:, place, :, kv.shape[3] - len(chunks[row]) :]
        logits = self.forward(
            parts,
            self._tensor(np.concatenate(tokens)),
            self._tensor(np.concatenate(positions)),
        )
        return logits[self._tensor(np.argsort(order))], own

    def _num_filled(self, rows: int) -> int:
        """Number of rows of a product in which some rows are in use; others fill it up."""
        return padded(max(rows, self._min_rows), self._rows_multiple)

    def _tensor(self, array: np.ndarray) -> Tensor:
        return torch.from_numpy(array).to(self.device)


def _left_padded(
    prefixes: Sequence[Segment | None],
    chunks: Sequence[tuple[int, ...]],
    prefix_width: int,
    chunk_width: int,
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """B chunks that continue prefixes, each of the two left-padded to its width.

    Returns:
        Tokens and positions, i64[B, Q], and which token sees which column, bool[B, Q, W].
    """
    rows, width = len(chunks), prefix_width + chunk_width
    tokens = np.zeros((rows, chunk_width), dtype=np.int64)
    seen = np.zeros((rows, width), dtype=bool)
    for row, (prefix, chunk) in enumerate(zip(prefixes, chunks, strict=True)):
        length = 0 if prefix is None else len(prefix)
        tokens[row, chunk_width - len(chunk) :] = chunk
        seen[row, prefix_width - length : prefix_width] = True
        seen[row, width - len(chunk) :] = True
    # A padding column before the chunk gets some valid position, which is never read.
    positions = np.maximum(np.cumsum(seen, axis=1)[:, prefix_width:] - 1, 0)
    seen_by = np.repeat(seen[:, None, :], chunk_width, axis=1)
    seen_by[:, :, prefix_width:] &= np.tri(chunk_width, dtype=bool)
    # Padding sees itself: a softmax over nothing would be NaN.
    seen_by[:, :, prefix_width:] |= np.eye(chunk_width, dtype=bool)
    return tokens, positions, seen_by


def _check_device(device: str) -> torch.device:
    try:
        parsed = torch.device(device)
    except RuntimeError:
        parsed = None
    if parsed is None or parsed.type not in ("cpu", "cuda"):
        raise BadInputError(f"device {device!r} is unknown: use 'cpu', 'cuda' or 'cuda:N'")
    if parsed.type == "cuda":
        count = torch.cuda.device_count() if torch.cuda.is_available() else 0
        if (parsed.index or 0) >= count:
            raise BadInputError(
                f"device {device!r} is not there: torch sees {count} CUDA devices; use 'cpu'"
            )
    return parsed


def _check_bound(kv_cache_gib: float | None, bytes_per_token: int) -> None:
    if kv_cache_gib is None:
        return
    if not 0 < kv_cache_gib < math.inf:
        raise BadInputError(f"kv_cache_gib={kv_cache_gib}: must be a number of GiB above 0")
    # A prompt and a step at the very least, and the slot for padding.
    if kv_cache_gib * 2**30 < 3 * bytes_per_token:
        raise BadInputError(
            f"kv_cache_gib={kv_cache_gib} is less than three tokens need: one's keys and values "
            f"take {bytes_per_token} bytes; raise it, or drop it for a share of the free memory"
        )


def _text_config(folder: pathlib.Path, config: Any) -> Any:
    """The configuration of the language model, nested in that of a model of text and images."""
    found = config.get_text_config(decoder=True)
    for name in _SIZES:
        if getattr(found, name, None) is None:
            raise BadInputError(
                f"{str(folder)!r}: config.json of the model type {config.model_type!r} has no "
                f"{name}: give a causal language model that transformers implements"
            )
    return found


@contextlib.contextmanager
def _reading(folder: pathlib.Path) -> Iterator[None]:
    """Turns what transformers raises on a broken folder into one line; hides its progress bars."""
    shown = transformers_logging.is_progress_bar_enabled()
    transformers_logging.disable_progress_bar()
    try:
        yield
    except BadInputError:
        raise
    # Its parsers, some of them written in Rust, may raise any error on broken content.
    except Exception as error:
        raise BadInputError(
            f"{str(folder)!r} can't be read as a model: {reason_of(error)}"
        ) from error
    finally:
        if shown:
            transformers_logging.enable_progress_bar()
