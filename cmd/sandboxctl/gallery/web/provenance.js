// How a cell was made, for people.
import { of } from './api.js';
import { bytes, copy, h } from './dom.js';

const short = (digest) => (digest ? `${digest.slice(0, 12)}…` : '');

function commandText(made) {
  if (made.argv) return made.argv.map((a) => (/^[\w@%+=:,./-]+$/.test(a) ? a : `'${a.replaceAll("'", "'\\''")}'`)).join(' ');
  return made.shell || made.python;
}

function input(cell, i) {
  const from = i.cell ? h('a', { href: `#/${of(cell.chat, i.cell)}` }, `#${i.cell} ${i.name}`) : i.name;
  return h('li', {}, from, h('span', { class: 'dim' }, ` ${bytes(i.size)} · `, h('code', { title: i.sha256 }, short(i.sha256))),
    i.url ? h('span', { class: 'dim from' }, i.url) : '');
}

export function provenanceView(cell, made) {
  const env = Object.entries(made.env ?? {}).sort().map(([k, v]) => `${k}=${v}`).join('\n');
  const text = commandText(made);
  const facts = [
    ['Image', h('code', { title: made.image }, short(made.image))],
    ['CPUs', String(made.cpus)], ['Network', made.network], ['Directory', h('code', {}, made.dir)], ['Version', made.product],
  ];
  if (made.earlier_commands) facts.push(['Before it', `${made.earlier_commands} commands in the same sandbox`]);
  return [
    h('h3', {}, 'How it was made', h('button', { type: 'button', class: 'small', onclick: () => copy(text, 'The command is copied') }, 'Copy')),
    h('pre', { class: 'source', tabIndex: 0, 'aria-label': 'Command' }, text),
    made.inputs.length ? h('h3', {}, 'From') : '',
    made.inputs.length ? h('ul', { class: 'inputs' }, made.inputs.map((i) => input(cell, i))) : '',
    h('dl', { class: 'list' }, facts.map(([k, v]) => [h('dt', {}, k), h('dd', {}, v)])),
    h('details', {}, h('summary', {}, 'Environment'), h('pre', { class: 'source', tabIndex: 0, 'aria-label': 'Environment' }, env)),
  ].filter(Boolean);
}
