// The compressed blocks of the page, see cats_jax/page/blocks.py.

const MOST_OPEN_BLOCKS = 8;
const openBlocks = new Map();

const documentRead = new Promise((resolve) => {
  if (document.readyState !== "loading") resolve();
  else document.addEventListener("DOMContentLoaded", resolve, {once: true});
});

// The JSON value of a block; the last few opened are kept.
async function openBlock(id) {
  const known = openBlocks.get(id);
  if (known !== undefined) {
    openBlocks.delete(id);
    openBlocks.set(id, known);
    return known;
  }
  if (document.getElementById(id) === null) await documentRead;
  const element = document.getElementById(id);
  if (element === null) throw new Error(`the page has no block "${id}": the file is incomplete`);
  const value = JSON.parse(await unpack(element.textContent));
  openBlocks.set(id, value);
  if (openBlocks.size > MOST_OPEN_BLOCKS) openBlocks.delete(openBlocks.keys().next().value);
  return value;
}

async function unpack(base64) {
  const packed = atob(base64);
  const bytes = new Uint8Array(packed.length);
  for (let i = 0; i < packed.length; i += 1) bytes[i] = packed.charCodeAt(i);
  const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("gzip"));
  return new Response(stream).text();
}
