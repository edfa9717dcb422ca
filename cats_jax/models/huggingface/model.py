"""A Hugging Face causal model from a local folder, run on key-value buffers this package owns.

The forward pass is the transformers model's own, so any architecture with a plain key-value cache
works. Three things are added through transformers' extension points: a cache whose layers write
into one preallocated buffer, an attention function that does not copy the keys of grouped-query
models, and masks given ready-made, those of layers with a sliding window among them. The widths of
all tensors follow from a row's own length, never from its neighbours'; with that, fp32 results on a
CPU are bitwise the same in any batch.
"""

from __future__ import annotations

import contextlib
import json
import math
import pathlib
import time
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from tokenizers import Tokenizer, models
from torch import Tensor
from transformers import (
    AttentionInterface,
    AutoConfig,
    AutoModelForCausalLM,
    AutoTokenizer,
    GenerationConfig,
    PreTrainedTokenizerFast,
)
from transformers.cache_utils import Cache, CacheLayerMixin
from transformers.utils import logging as transformers_logging

from ...errors import BadInputError
from ...protocols import Question
from ..adapter import Adapter
from ..folders import check_model_folder
from ..local_files import LOCAL_FILES, read_config, reason_of
from ..prompts.policy_encoder import PromptEncoder
from ..prompts.policy_format import AUTO, choose_format
from ..threads import default_threads
from ..weights import stored_tensors
from .attention import check_computable, layer_masks
from .prefix_cache import PrefixCache, Segment, cache_bytes

WIDTH = 32
"""Cached prefixes are padded to a multiple of this many columns, by which buffers grow, too."""

CHUNK_WIDTH = 8
"""Chunks of new tokens are padded to a multiple of this many columns."""

# BLAS takes other kernels for few rows, which differ in the last bit from those for more. How few
# depends on the processor: with MKL on AVX-512 1 to 3 rows, with AMX beside it up to 10 (for 256
# inputs). No product on the CPU has fewer rows than this.
_MIN_CPU_ROWS = 16

# torch's silu rounds the elements after the last whole 32 in another way, so that a row's result
# would depend on its place. With a multiple of 4 rows, widths that are multiples of 8 leave none.
_CPU_ROWS_MULTIPLE = 4

_DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16}

_SIZES = (
    "max_position_embeddings",
    "vocab_size",
    "num_hidden_layers",
    "num_attention_heads",
    "hidden_size",
)
"""What a configuration must name."""

_ATTENTION = "cats_jax_grouped_query"


def padded(length: int, multiple: int) -> int:
    """`length` rounded up to a multiple of `multiple`."""
    return -(-length // multiple) * multiple


class CausalModel:
    """A causal language model with its tokenizer, in evaluation mode on one device.

    Args:
        path: a local model folder with safetensors weights; nothing is ever downloaded.
        device: "cpu", "cuda" or "cuda:N".
        dtype: "float32" or "bfloat16", of weights and cached keys and values.
        num_threads: torch's threads for work inside an operator; None takes `default_threads`.
            Bitwise equality is only known for one.
        kv_cache_gib: largest size of the cache of keys and values in GiB (2**30 bytes), > 0; None
            takes `footprint.FREE_SHARE`, a quarter, of the memory that is free when the cache is
            made, after the weights. On a CPU that is the kernel's MemAvailable, or all memory where
            the kernel does not tell. A micro-batch copies the prefixes of its rows out of the
            cache: up to `batch_tokens` tokens of the bridge, and what its rows decode, come on top.
        format: policy format of the questions, see `choose_format`. None for a model that gets no
            questions; its tokenizer needs no chat template.
        adapter: folder of a LoRA adapter that is merged into the weights, see `models.adapter`.

    Attributes:
        name: name of the folder; with an adapter, "FOLDER+ADAPTER".
        adapter: the `Adapter`, or None.
        format: the `PolicyFormat` that was chosen; not set if the argument is None.
        num_parameters: number of parameters, a tied tensor counted once; set by `load_weights`.
        config: the transformers configuration, of a model of text and images that of the whole.
        text_config: the configuration of the language model in it.
        own_context: largest number of tokens in a sequence that the model allows.
        context: the largest number that is used, `own_context` unless `limit_context` lowers it.
        vocab_size: width of the logits.
        kv_bytes_per_token: bytes of one token's keys and values.
        seconds: time spent in forward passes and in blocks under `timed`.

    Raises:
        BadInputError: the folder, device, dtype, format or bound can't work; no weight was read.
    """

    def __init__(
        self,
        path: str | pathlib.Path,
        *,
        device: str,
        dtype: str,
        num_threads: int | None,
        kv_cache_gib: float | None = None,
        format: str | None = AUTO,
        adapter: str | pathlib.Path | None = None,
    ):
        # `from_pretrained` would take a wrong path for the id of a model on the hub.
        folder = check_model_folder(path).resolve()
        self.device = _check_device(device)
        if dtype not in _DTYPES:
            raise BadInputError(f"dtype {dtype!r} is unknown: use one of {', '.join(_DTYPES)}")
        self.dtype = _DTYPES[dtype]
        self.name = folder.name
        read_config(folder)
        with _reading(folder):
            self.tokenizer: Any = _load_tokenizer(folder)
            config: Any = AutoConfig.from_pretrained(folder, **LOCAL_FILES)
        self._prompts: PromptEncoder | None = None
        if format is not None:
            self.format = choose_format(format, self.tokenizer.get_vocab())
            self._prompts = PromptEncoder(self.format, self.tokenizer)
        self.config = config
        self.text_config = config = _text_config(folder, config)
        self.context = self.own_context = int(config.max_position_embeddings)
        self.vocab_size = int(config.vocab_size)
        self.seconds = 0.0
        on_cpu = self.device.type == "cpu"
        self.min_rows = _MIN_CPU_ROWS if on_cpu else 1
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
        self._folder = folder
        self.adapter = None if adapter is None else Adapter(adapter, folder)
        if self.adapter is not None:
            self.name += f"+{self.adapter.folder.name}"

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
            auto_class: class of transformers that loads the model; `AutoModel` leaves the
                language-model head out.

        Raises:
            BadInputError: a tensor of the model is missing, or see `check_computable` and
                `Adapter.merged`.
        """
        self.check_computable()
        self._check_stored()
        with _reading(self._folder):
            if self._num_threads is None:
                self._num_threads = default_threads(self._folder, self.device.type)
            loaded: Any = auto_class.from_pretrained(
                self._folder,
                config=self.config,
                dtype=self.dtype,
                attn_implementation=_ATTENTION,
                use_safetensors=True,
                output_loading_info=True,
                **LOCAL_FILES,
            )
        self.model, info = loaded
        if info["missing_keys"]:
            # transformers would go on with random numbers in their place.
            name = min(info["missing_keys"])
            raise BadInputError(
                f"{str(self._folder)!r} lacks {len(info['missing_keys'])} of the model's tensors, "
                f"{name!r} among them: check that config.json belongs to these weights"
            )
        if self.adapter is not None:
            self.adapter.merge_into(self.model)
        self.model.to(self.device).eval()
        self.num_parameters = sum(p.numel() for p in self.model.parameters())

    def _check_stored(self) -> None:
        """Check that there are weights for all layers, which transformers makes before it looks."""
        stored = sum(math.prod(tensor.shape) for tensor in stored_tensors(self._folder).values())
        if self._num_layers * int(self.text_config.hidden_size) > stored:
            raise BadInputError(
                f"{str(self._folder)!r}: config.json names {self._num_layers} layers of width "
                f"{self.text_config.hidden_size}, for which {stored} stored numbers are too few: "
                "check that config.json belongs to these weights"
            )

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
        """Token ids of the question in the model's format, up to the start of the answer."""
        assert self._prompts is not None
        ids = self._prompts.prompt_ids(question.text, question.system)
        if len(ids) < 2:
            raise BadInputError(
                f"question {question.id!r} has {len(ids)} prompt tokens under the chat template "
                f"of {self.name!r}, at least 2 are needed: check the question and the template"
            )
        return ids

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
        return sorted(token for token in found if token < self.vocab_size)

    @contextlib.contextmanager
    def timed(self) -> Iterator[None]:
        """Adds the block's duration to `seconds`; on a GPU, waits until its work is done.

        The block has this model's number of threads, whatever another one had before it.
        """
        start = time.perf_counter()
        if self._num_threads is not None and torch.get_num_threads() != self._num_threads:
            torch.set_num_threads(self._num_threads)
        yield
        if self.device.type == "cuda":
            torch.cuda.synchronize(self.device)
        self.seconds += time.perf_counter() - start

    def forward(
        self, kv: Tensor, column: int, tokens: Tensor, positions: Tensor, mask: Tensor, keep: int
    ) -> Tensor:
        """Runs new tokens on top of cached ones and writes their keys and values into `kv`.

        Args:
            kv: [2 x layers, B, heads, W, dim]; columns `column`..`column + Q` are overwritten.
            column: column of the first new token.
            tokens, positions: i64[B, Q], the new tokens and their positions in the sequence.
            mask: [B, 1, Q, W] in the model's dtype, 0 where a token is seen and -inf elsewhere;
                every row must see a token. Layers with a sliding window see the last of these.
            keep: number of last columns whose logits are returned.

        Returns:
            Logits [B, keep, V] in the model's dtype.
        """
        layers: list[Any] = [
            _BufferLayer(kv[2 * i], kv[2 * i + 1], column) for i in range(self._num_layers)
        ]
        with self.timed():
            return self.model(
                input_ids=tokens,
                position_ids=positions,
                attention_mask=layer_masks(mask, self.text_config),
                past_key_values=Cache(layers=layers),
                use_cache=True,
                logits_to_keep=keep,
            ).logits

    def extend(
        self,
        cache: PrefixCache,
        prefixes: Sequence[Segment | None],
        chunks: Sequence[tuple[int, ...]],
    ) -> tuple[Tensor, list[Tensor]]:
        """Computes one chunk of tokens on top of each cached prefix, in one pass.

        Args:
            cache: the cache that holds the prefixes.
            prefixes: ends of B cached paths of one padded width; None is the empty path.
            chunks: B non-empty chunks of one padded chunk width.

        Returns:
            The logits at each chunk's last token, [B, V], and each chunk's keys and values,
            [planes, heads, tokens, dim].
        """
        (chunk_width,) = {padded(len(chunk), CHUNK_WIDTH) for chunk in chunks}
        asked = len(chunks)
        # Copies of the first row, so that every product has rows enough.
        copies = max(0, -(-self.min_rows // chunk_width) - asked)
        prefixes = [*prefixes, *[prefixes[0]] * copies]
        chunks = [*chunks, *[chunks[0]] * copies]
        lengths = [0 if prefix is None else len(prefix) for prefix in prefixes]
        (prefix_width,) = {padded(length, WIDTH) for length in lengths}
        rows, width = len(chunks), prefix_width + chunk_width
        tokens = np.zeros((rows, chunk_width), dtype=np.int64)
        seen = np.zeros((rows, width), dtype=bool)
        for row, (length, chunk) in enumerate(zip(lengths, chunks, strict=True)):
            tokens[row, chunk_width - len(chunk) :] = chunk
            seen[row, prefix_width - length : prefix_width] = True
            seen[row, width - len(chunk) :] = True
        # A padding column before the chunk gets some valid position; nobody looks at it.
        positions = np.maximum(np.cumsum(seen, axis=1)[:, prefix_width:] - 1, 0)
        seen_by = np.repeat(seen[:, None, :], chunk_width, axis=1)
        seen_by[:, :, prefix_width:] &= np.tri(chunk_width, dtype=bool)
        # Padding sees itself: a softmax over nothing would be NaN.
        seen_by[:, :, prefix_width:] |= np.eye(chunk_width, dtype=bool)
        mask = torch.zeros(seen_by.shape, dtype=self.dtype, device=self.device)
        mask.masked_fill_(~self._tensor(seen_by), -torch.inf)

        kv = cache.gather(prefixes, prefix_width, width)
        logits = self.forward(
            kv,
            prefix_width,
            self._tensor(tokens),
            self._tensor(positions),
            mask[:, None],
            # The head is a product of its own, with one row per kept column.
            keep=1 if rows >= self.min_rows else min(self.min_rows, chunk_width),
        )
        own = [kv[:, row, :, width - len(chunks[row]) :] for row in range(asked)]
        return logits[:asked, -1], own

    def start_rows(
        self, cache: PrefixCache, prefixes: Sequence[Segment], most: int
    ) -> DecodingRows:
        """Rows that continue cached prefixes, all of one padded width, token by token.

        Their number will not exceed `most`.
        """
        return DecodingRows(self, cache, prefixes, most)

    def num_decoded(self, rows: int) -> int:
        """Number of rows of a decoding batch in which some rows are in use; others fill it up."""
        return padded(max(rows, self.min_rows), self._rows_multiple)

    def _tensor(self, array: np.ndarray) -> Tensor:
        return torch.from_numpy(array).to(self.device)


class DecodingRows:
    """A batch of rows that advance one token at a time, in lockstep.

    The prefix stands left-padded in columns 0..P, P a multiple of 32; the token fed at tick t goes
    to column P + t; the buffer is P + 32·ceil((t + 1) / 32) columns wide. All of that follows from
    the row's own prefix length and tick.

    Attributes:
        num_rows: rows in use, B.
    """

    def __init__(
        self, model: CausalModel, cache: PrefixCache, prefixes: Sequence[Segment], most: int
    ):
        lengths = [len(prefix) for prefix in prefixes]
        (self._prefix_width,) = {padded(length, WIDTH) for length in lengths}
        self._model = model
        self._tick = 0
        self._most = most
        self.num_rows = len(prefixes)
        fill = [0] * (model.num_decoded(self.num_rows) - self.num_rows)
        index = [*range(self.num_rows), *fill]
        width = self._prefix_width + WIDTH
        self._kv = cache.gather([prefixes[i] for i in index], self._prefix_width, width)
        self._lengths = torch.tensor([lengths[i] for i in index], device=model.device)
        columns = torch.arange(self._kv.shape[3], device=model.device)
        seen = (columns >= self._prefix_width - self._lengths[:, None]) & (
            columns < self._prefix_width
        )
        self._mask = torch.zeros(seen.shape, dtype=model.dtype, device=model.device)
        self._mask.masked_fill_(~seen, -torch.inf)

    def feed(self, tokens: Tensor) -> Tensor:
        """Feeds one token to each row: i64[B] -> logits [B, V]."""
        column = self._prefix_width + self._tick
        if column == self._kv.shape[3]:
            self._kv = F.pad(self._kv, (0, 0, 0, WIDTH))
            self._mask = F.pad(self._mask, (0, WIDTH), value=-torch.inf)
        self._mask[:, column] = 0
        size = self._model.num_decoded(self.num_rows)
        logits = self._model.forward(
            self._kv[:, :size],
            column,
            F.pad(tokens, (0, size - self.num_rows))[:, None],
            (self._lengths[:size] + self._tick)[:, None],
            self._mask[:size, None, None],
            keep=1,
        )
        self._tick += 1
        return logits[: self.num_rows, -1]

    def follow(self, parents: Tensor) -> Tensor:
        """Makes each of B' rows the continuation of a present row; other rows are gone.

        A row stays where it is for one of those that continue it. Only the others are copied, to
        the places of rows that are gone: copying keys and values is most of the cost.

        Args:
            parents: i64[B'], ascending; a row may occur more than once.

        Returns:
            i64[B'], the new row of each.
        """
        count = len(parents)
        stays = parents < count
        stays[1:] &= parents[1:] != parents[:-1]
        free = torch.ones(count, dtype=torch.bool, device=parents.device)
        free[parents[stays]] = False
        places = parents.clone()
        places[~stays] = free.nonzero()[:, 0]
        source, target = parents[~stays], places[~stays]
        if len(source) > 0:
            self._grow(count)
            self._kv.index_copy_(1, target, self._kv.index_select(1, source))
            self._lengths[target] = self._lengths[source]
            self._mask[target] = self._mask[source]
        self.num_rows = count
        return places

    def _grow(self, count: int) -> None:
        """Gives the buffer room for a number of rows, and for more if it had too few."""
        if (size := self._model.num_decoded(count)) > self._kv.shape[1]:
            more = max(size, min(2 * size, self._most)) - self._kv.shape[1]
            planes, _, *shape = self._kv.shape
            # Zeros, since a masked column is still multiplied by 0.
            self._kv = torch.cat((self._kv, self._kv.new_zeros((planes, more, *shape))), 1)
            self._lengths = F.pad(self._lengths, (0, more))
            self._mask = F.pad(self._mask, (0, 0, 0, more))

    def own(self, rows: Tensor) -> list[Tensor]:
        """Keys and values of the tokens fed to each of `rows`, [planes, heads, ticks, dim]."""
        columns = slice(self._prefix_width, self._prefix_width + self._tick)
        return list(self._kv[..., columns, :].index_select(1, rows).unbind(1))


class _BufferLayer(CacheLayerMixin):
    """One layer's view of a key-value buffer: new entries go to fixed columns."""

    def __init__(self, keys: Tensor, values: Tensor, column: int):
        super().__init__()
        self.keys, self.values = keys, values
        self.is_initialized = True
        self._column = column

    def update(
        self, key_states: Tensor, value_states: Tensor, *args: Any, **kwargs: Any
    ) -> tuple[Tensor, Tensor]:
        """Writes [B, heads, Q, dim] into the buffer; returns all of it, [B, heads, W, dim]."""
        assert self.keys is not None
        assert self.values is not None
        columns = slice(self._column, self._column + key_states.shape[2])
        self.keys[:, :, columns] = key_states
        self.values[:, :, columns] = value_states
        return self.keys, self.values

    def lazy_initialization(self, key_states: Tensor, value_states: Tensor) -> None:
        """Does nothing: the buffer exists from the start."""

    def get_mask_sizes(self, query_length: int) -> tuple[int, int]:
        """Width and offset of masks made by transformers; this package passes its own masks."""
        return self.get_max_length(), 0

    def get_seq_length(self) -> int:
        """Number of columns before the new ones."""
        return self._column

    def get_max_length(self) -> int:
        """Number of columns of the buffer."""
        assert self.keys is not None
        return self.keys.shape[2]


def _grouped_query_attention(
    module: torch.nn.Module,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor,
    scaling: float | None = None,
    **kwargs: Any,
) -> tuple[Tensor, None]:
    """Attention with G query heads per key head, without repeating the keys G times.

    The query heads of one key head become G times as many queries: transformers' own function
    copies keys and values instead, which costs more than the whole rest of a decoding step.

    Args:
        query: [B, G·H, Q, dim].
        key, value: [B, H, W, dim].
        attention_mask: [B, 1, Q, W], added to the scores.

    Returns:
        [B, Q, G·H, dim], and no weights.
    """
    for name in ("softcap", "s_aux", "position_bias"):
        if kwargs.get(name) is not None:
            raise BadInputError(
                f"{type(module).__name__} asks for {name!r}, which this bridge does not compute: "
                f"serve the model with vLLM"
            )
    batch, num_heads, queries, dim = query.shape
    groups = num_heads // key.shape[1]
    out = F.scaled_dot_product_attention(
        query.reshape(batch, key.shape[1], groups * queries, dim),
        key,
        value,
        attn_mask=attention_mask if queries == 1 else attention_mask.repeat(1, 1, groups, 1),
        scale=scaling,
    )
    return out.reshape(batch, num_heads, queries, -1).transpose(1, 2), None


AttentionInterface.register(_ATTENTION, _grouped_query_attention)


def _load_tokenizer(folder: pathlib.Path) -> Any:
    """The tokenizer as it was saved.

    AutoTokenizer (5.19) takes the class of the model type for some types, qwen2 among them, and
    rebuilds its splitting rules, also where the folder holds a tokenizer of another kind. A folder
    that says its tokenizer.json is the whole tokenizer is taken at its word.
    """
    file = folder / "tokenizer_config.json"
    saved_class = json.loads(file.read_text()).get("tokenizer_class") if file.is_file() else None
    if saved_class in ("TokenizersBackend", "PreTrainedTokenizerFast"):
        return PreTrainedTokenizerFast.from_pretrained(folder, local_files_only=True)
    tokenizer: Any = AutoTokenizer.from_pretrained(folder, **LOCAL_FILES)
    pieces = folder / "tokenizer.model"
    if pieces.is_file() and not (folder / "tokenizer.json").is_file():
        _merge_by_score(tokenizer.backend_tokenizer, pieces)
    return tokenizer


def _merge_by_score(backend: Tokenizer, pieces: pathlib.Path) -> None:
    """Orders the merges of a converted sentencepiece model by the scores of its pieces.

    transformers (5.19) orders them by id instead. Runs of spaces have low ids and the lowest score
    in the models of Llama 2 and Mistral, so that two spaces before a word would become one token.
    """
    stored = json.loads(backend.to_str())["model"]
    if stored["type"] != "BPE" or not stored["byte_fallback"]:
        return  # no sentencepiece model with merges: Unigram, or a vocabulary of tiktoken
    from sentencepiece import SentencePieceProcessor

    model: Any = SentencePieceProcessor(model_file=str(pieces))
    score = {model.id_to_piece(i): model.get_score(i) for i in range(model.get_piece_size())}
    backend.model = models.BPE(
        vocab=stored["vocab"],
        merges=sorted(map(tuple, stored["merges"]), key=lambda pair: -score["".join(pair)]),
        unk_token=stored["unk_token"],
        fuse_unk=stored["fuse_unk"],
        byte_fallback=True,
    )


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
            f"kv_cache_gib={kv_cache_gib} holds no path: keys and values of one token take "
            f"{bytes_per_token} bytes; raise it, or drop it for a share of the free memory"
        )


def _text_config(folder: pathlib.Path, config: Any) -> Any:
    """The configuration of the language model, which those of text and images have nested."""
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
    # Its parsers, those written in Rust among them, raise whatever the content makes them.
    except Exception as error:
        raise BadInputError(
            f"{str(folder)!r} can't be read as a model: {reason_of(error)}"
        ) from error
    finally:
        if shown:
            transformers_logging.enable_progress_bar()
