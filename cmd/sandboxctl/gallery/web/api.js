// Requests to the server that this page came from. Each carries the session's
// key beside its cookie.

const slot = 'media-sandbox-gallery-key';

// enter keeps the key that came with the link, and leaves the link behind: it
// works once. It returns false when the page is loaded again for that.
export function enter() {
  const key = document.querySelector('meta[name=gallery-key]').content;
  if (!key) return true;
  localStorage.setItem(slot, key);
  location.replace('/' + location.hash);
  return false;
}

const key = () => localStorage.getItem(slot) ?? '';

// link is where an element or a stream finds something.
export function link(path, query = {}) {
  const q = new URLSearchParams({ ...query, k: key() });
  return `/api/${path}?${q}`;
}

// of builds a path of names.
export const of = (...names) => names.map((n) => encodeURIComponent(n)).join('/');

export class Failure extends Error {
  constructor(status, body) {
    super(body?.message ?? `the server answered ${status}`);
    this.status = status;
    this.hint = body?.hint;
  }
}

async function ask(method, path, query) {
  const q = new URLSearchParams(query ?? {});
  const res = await fetch(`/api/${path}${q.size ? `?${q}` : ''}`, { method, headers: { 'Gallery-Key': key() } });
  const text = await res.text();
  let body;
  try { body = JSON.parse(text); } catch { body = { error: { message: text.trim() } }; }
  if (!res.ok) throw new Failure(res.status, body.error);
  return body;
}

export const get = (path, query) => ask('GET', path, query);
export const post = (path) => ask('POST', path);

// head reads the first bytes of a file as text.
export async function head(path, limit) {
  const res = await fetch(`/api/${path}`, { headers: { 'Gallery-Key': key(), Range: `bytes=0-${limit - 1}` } });
  if (!res.ok) throw new Failure(res.status);
  return new TextDecoder().decode(await res.arrayBuffer());
}

export const cellPath = (cell, ...rest) => of('chats', cell.chat, 'cells', cell.ordinal, ...rest);

// A revision has files of its own: the number keeps the browser from showing
// those of the one before.
export const contentLink = (cell) => link(cellPath(cell, 'content'), { rev: cell.revision });
export const previewLink = (cell, kind) => link(cellPath(cell, 'preview'), { kind, rev: cell.revision });
