// A picture that can be zoomed, moved, and laid over what it was made from.
import { cellPath, contentLink, link } from './api.js';
import { h, icon } from './dom.js';

const closest = 16;

export function imageStage(cell) {
  const after = h('img', { src: contentLink(cell), alt: cell.file.file_name, draggable: false, class: 'after' });
  const sheet = h('div', { class: 'sheet' }, after);
  const el = h('div', { class: 'stage image', tabIndex: 0, role: 'group', 'aria-label': 'Picture; plus and minus zoom, 0 fits', 'data-zoom': '1' }, sheet);
  const view = { scale: 1, x: 0, y: 0 };
  const percent = h('output', { class: 'percent' }, 'Fit');

  const draw = () => {
    sheet.style.transform = `translate(${view.x}px, ${view.y}px) scale(${view.scale})`;
    el.dataset.zoom = view.scale.toFixed(2);
    el.classList.toggle('zoomed', view.scale > 1);
    after.classList.toggle('pixels', view.scale >= 4);
    percent.textContent = view.scale === 1 ? 'Fit' : `${view.scale.toFixed(1)}×`;
  };
  // zoom keeps the point under (cx, cy), from the middle, where it is.
  const zoom = (by, cx = 0, cy = 0) => {
    const scale = Math.min(closest, Math.max(1, view.scale * by));
    view.x = cx - (cx - view.x) * scale / view.scale;
    view.y = cy - (cy - view.y) * scale / view.scale;
    view.scale = scale;
    if (scale === 1) view.x = view.y = 0;
    draw();
  };
  const fit = () => {
    Object.assign(view, { scale: 1, x: 0, y: 0 });
    draw();
  };
  listen(el, view, zoom, fit, draw);
  const button = (name, glyph, f) => h('button', { type: 'button', class: 'round', 'aria-label': name, onclick: f }, icon(glyph));
  const tools = h('div', { class: 'tools' }, button('Zoom out', 'minus', () => zoom(1 / 1.5)), percent, button('Zoom in', 'plus', () => zoom(1.5)),
    button('Fit', 'fit', fit));
  draw();
  return { el, tools, inputs: (made) => offerCompare(cell, made, el, sheet, tools) };
}

function listen(el, view, zoom, fit, draw) {
  const middle = (e) => {
    const box = el.getBoundingClientRect();
    return [e.clientX - box.left - box.width / 2, e.clientY - box.top - box.height / 2];
  };
  el.addEventListener('wheel', (e) => {
    e.preventDefault();
    zoom(Math.exp(-e.deltaY / 300), ...middle(e));
  }, { passive: false });
  el.addEventListener('dblclick', (e) => { if (!e.target.closest('.compare')) { if (view.scale > 1) fit(); else zoom(3, ...middle(e)); } });
  el.addEventListener('keydown', (e) => {
    if (e.target.closest('input')) return;
    if (e.key === '+' || e.key === '=') zoom(1.5);
    else if (e.key === '-') zoom(1 / 1.5);
    else if (e.key === '0') fit();
  });
  const down = new Map(); // fingers
  el.addEventListener('pointerdown', (e) => {
    if (e.target.closest('input, button')) return;
    down.set(e.pointerId, e);
    if (view.scale > 1 || down.size > 1) el.setPointerCapture(e.pointerId);
  });
  el.addEventListener('pointermove', (e) => {
    const before = down.get(e.pointerId);
    if (!before) return;
    if (down.size === 2) {
      const other = [...down.values()].find((p) => p.pointerId !== e.pointerId);
      const gap = (p) => Math.hypot(p.clientX - other.clientX, p.clientY - other.clientY) || 1;
      zoom(gap(e) / gap(before), ...middle(other));
    } else if (view.scale > 1) {
      view.x += e.clientX - before.clientX;
      view.y += e.clientY - before.clientY;
      draw();
    }
    down.set(e.pointerId, e);
  });
  ['pointerup', 'pointercancel', 'lostpointercapture'].forEach((name) => el.addEventListener(name, (e) => down.delete(e.pointerId)));
}

// offerCompare adds the switch between the picture alone and before and after.
function offerCompare(cell, made, el, sheet, tools) {
  // What the command names comes first: the sandbox may hold inputs of others.
  const text = [...(made.argv ?? []), ...(made.args ?? []), made.shell, made.python].join(' ');
  const pictures = made.inputs.filter((i) => i.content_type.startsWith('image/') && (i.cell || i.kept))
    .sort((a, b) => text.includes(b.name) - text.includes(a.name));
  if (!pictures.length || tools.querySelector('#compare')) return;
  const before = h('img', { alt: '', draggable: false, class: 'before' });
  const source = (i) => link(cellPath(cell, 'input'), { name: i.name });
  const range = h('input', {
    type: 'range', min: 0, max: 100, step: 1, value: 50, class: 'wipe', 'aria-label': 'Before and after',
    oninput: () => el.style.setProperty('--wipe', `${range.value}%`),
  });
  const choice = h('select', { 'aria-label': 'Compare with', onchange: () => { before.src = source(pictures[choice.selectedIndex]); } },
    pictures.map((i) => h('option', {}, i.cell ? `#${i.cell} ${i.name}` : i.name)));
  const tag = h('span', { class: 'tag left' }, pictures.length > 1 ? choice : `Before: ${pictures[0].name}`);
  const over = h('div', { class: 'compare' }, h('span', { class: 'handle' }), range, tag, h('span', { class: 'tag right' }, 'After'));
  const button = h('button', {
    type: 'button', id: 'compare', class: 'small', 'aria-pressed': 'false',
    onclick: () => {
      const on = button.getAttribute('aria-pressed') !== 'true';
      button.setAttribute('aria-pressed', String(on));
      el.classList.toggle('comparing', on);
      if (!on) {
        over.remove();
        before.remove();
        return;
      }
      if (!before.src) before.src = source(pictures[0]);
      el.style.setProperty('--wipe', `${range.value}%`);
      sheet.prepend(before);
      el.append(over);
      range.focus();
    },
  }, icon('split'), h('span', {}, 'Compare'));
  tools.prepend(button);
}
