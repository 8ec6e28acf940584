// Elements, made in one expression. Text is text: nothing here becomes markup.

/** An element with attributes and children, which are elements or texts. */
export function element(name, attributes = {}, ...children) {
  return filled(document.createElement(name), attributes, children);
}

/** The same of SVG. */
export function drawn(name, attributes = {}, ...children) {
  return filled(document.createElementNS("http://www.w3.org/2000/svg", name), attributes, children);
}

/** The element with an id. */
export function byId(id) {
  return document.getElementById(id);
}

/** Gives an element these children, unless they say what is there already: readers are not disturbed for nothing. */
export function replaced(parent, children) {
  const fresh = element("div", {}, ...children);
  if (fresh.textContent !== parent.textContent || fresh.childElementCount !== parent.childElementCount) {
    parent.replaceChildren(...fresh.childNodes);
  }
}

function filled(made, attributes, children) {
  for (const [name, value] of Object.entries(attributes)) {
    if (value !== null && value !== false) made.setAttribute(name, value === true ? "" : value);
  }
  made.append(...children);
  return made;
}
