"""The families' model cards, read literally: what scores must equal.

Nothing here imports the package: each card's text or conversation is built and encoded as the card
does, one full forward pass goes over the whole path, and the scores are read off by its rule.
"""

import prm_families
import sentencepiece
import torch
from safetensors.torch import load_file
from transformers import (
    AutoModelForTokenClassification,
    AutoTokenizer,
    LlamaForCausalLM,
    Qwen2Model,
)

QUESTION = "What is 3+4+5? Say how."
PATHS = {
    "one": ["Step 1: 3 + 4 = 7."],
    "three": [
        "Step 1: 3 + 4 = 7.",
        "Step 2: 7 + 5 = 12. so we get 12",
        "the answer is \\boxed{12}.",
    ],
    "forty": [f"Step {i}: {i} + {i} = {2 * i}." for i in range(1, 41)],
    "latex": [
        "$\\frac{1}{2} + x_{1}^{2}$",
        "\\[ \\sqrt{2} \\leq 1.5 \\]",
        "$$\\boxed{\\frac{3}{4}}$$",
    ],
    "unicode": ["é 中文 🙂 √2", "½ of 8 is 4", "\u200bnext"],
}
# In these, text inside a step looks like what separates steps.
ADVERSARIAL = {
    "newlines": ["first\nsecond\n\nthird", "x =\n 1\n", "so\n\n\n7"],
    "tags": ["a ки b ки\nки", "+ - +", "<extra_0> and <extra_0>", "7 ки"],
    "specials": ["<|eot_id|><s>", "</s> <|im_end|>\n", "<|im_start|>assistant\n+"],
    "leading": [" two spaces", "\nnewline first", "  7"],
}


def stored(folder):
    tensors = {}
    for file in sorted(folder.glob("*.safetensors")):
        tensors.update(load_file(file))
    return tensors


class MathShepherdCard:
    """Text with the tag after each step; scores where the tag's id stands."""

    def __init__(self, folder):
        self.model = LlamaForCausalLM.from_pretrained(folder, dtype=torch.float32).eval()
        self.pieces = sentencepiece.SentencePieceProcessor(
            model_file=str(folder / "tokenizer.model")
        )

    def encode(self, text):
        return [self.pieces.bos_id(), *self.pieces.encode(text)]

    def __call__(self, question, steps):
        ids = self.encode(f"{question} " + "\n".join(f"{step} ки" for step in steps))
        # A step may hold the tag's text, so that tags are counted by the texts that end in them.
        ends = [
            self.encode(f"{question} " + "\n".join(f"{step} ки" for step in steps[: i + 1]))
            for i in range(len(steps))
        ]
        assert all(ids[: len(end)] == end for end in ends)
        good, bad, tag = (self.pieces.piece_to_id(piece) for piece in ("▁+", "▁-", "▁ки"))
        if not any("ки" in step for step in steps):
            assert [i for i, token in enumerate(ids) if token == tag] == [len(e) - 1 for e in ends]
        logits = self.model(torch.tensor([ids])).logits[0]
        return [float(logits[len(e) - 1, [good, bad]].softmax(-1)[0]) for e in ends]


class RLHFlowCard:
    """A pass for each prefix of the conversation, read at the third token from its end."""

    def __init__(self, folder):
        self.model = LlamaForCausalLM.from_pretrained(folder, dtype=torch.float32).eval()
        self.tokenizer = AutoTokenizer.from_pretrained(folder)

    def __call__(self, question, steps):
        plus = self.tokenizer.encode("+")[-1]
        minus = self.tokenizer.encode("-")[-1]
        conversation, scores = [], []
        for k, step in enumerate(step.strip() for step in steps):
            text = question + " " + step if k == 0 else step
            conversation.append({"content": text, "role": "user"})
            conversation.append({"content": "+", "role": "assistant"})
            rendered = self.tokenizer.apply_chat_template(conversation, tokenize=False)
            ids = self.tokenizer(rendered, add_special_tokens=False)["input_ids"]
            assert ids[-2] == plus
            logits = self.model(torch.tensor([ids])).logits[0, -3, [plus, minus]]
            scores.append(float(logits.softmax(-1)[0]))
        return scores


class SkyworkCard:
    """Question and steps encoded one by one; the value head at the newline after each step."""

    def __init__(self, folder):
        self.model = Qwen2Model.from_pretrained(folder, dtype=torch.float32).eval()
        tensors = stored(folder)
        self.weight, self.bias = tensors["v_head.summary.weight"], tensors["v_head.summary.bias"]
        self.tokenizer = AutoTokenizer.from_pretrained(folder)

    def __call__(self, question, steps):
        encode = self.tokenizer.encode
        ids = encode(self.tokenizer.bos_token + question + "\n")
        flags = []
        for step in steps:
            ids += encode(step.replace("\n", " "))
            flags.append(len(ids))
            ids.append(encode("\n")[-1])
        hidden = self.model(torch.tensor([ids])).last_hidden_state[0]
        values = (hidden @ self.weight.T + self.bias).squeeze(-1)
        return values[flags].sigmoid().tolist()


class QwenCard:
    """One answer with a token after each step; label 1 of the head there."""

    def __init__(self, folder):
        self.model = Qwen2Model.from_pretrained(folder, dtype=torch.float32).eval()
        self.head = {k: v for k, v in stored(folder).items() if k.startswith("score.")}
        self.tokenizer = AutoTokenizer.from_pretrained(folder)

    def __call__(self, question, steps):
        messages = [
            {"role": "system", "content": prm_families.SYSTEM},
            {"role": "user", "content": question},
            {"role": "assistant", "content": "<extra_0>".join(steps) + "<extra_0>"},
        ]
        text = self.tokenizer.apply_chat_template(messages, tokenize=False)
        ids = torch.tensor([self.tokenizer.encode(text)])
        hidden = self.model(ids).last_hidden_state[0]
        hidden = torch.relu(hidden @ self.head["score.0.weight"].T + self.head["score.0.bias"])
        logits = hidden @ self.head["score.2.weight"].T + self.head["score.2.bias"]
        (separator,) = self.tokenizer.encode("<extra_0>")
        return logits.softmax(-1)[ids[0] == separator][:, 1].tolist()


class TRLCard:
    """TRL 0.24's `PRMTrainer.tokenize_row`, and the model that it trains."""

    def __init__(self, folder):
        load = AutoModelForTokenClassification.from_pretrained
        self.model = load(folder, dtype=torch.float32).eval()
        self.tokenizer = AutoTokenizer.from_pretrained(folder)

    def __call__(self, question, steps):
        ids = self.tokenizer(question, add_special_tokens=False)["input_ids"]
        if self.tokenizer.bos_token_id is not None:
            ids = [self.tokenizer.bos_token_id, *ids]
        ends = []
        for step in steps:
            ids += self.tokenizer(step, add_special_tokens=False)["input_ids"]
            ids += self.tokenizer.encode("\n", add_special_tokens=False)
            ends.append(len(ids) - 1)
        return self.model(torch.tensor([ids])).logits[0, ends].softmax(-1)[:, 1].tolist()


CARDS = {
    "math-shepherd": MathShepherdCard,
    "rlhflow-mistral": RLHFlowCard,
    "rlhflow-deepseek": RLHFlowCard,
    "skywork": SkyworkCard,
    "qwen2.5-math-prm": QwenCard,
    "trl": TRLCard,
}
