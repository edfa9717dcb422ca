"""GGUF files of llama.cpp as model folders: header, configuration, tokenizer, weights."""
