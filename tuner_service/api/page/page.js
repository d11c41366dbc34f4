// Draws the routes of openapi.json; everything it needs comes from the service itself.
const METHODS = ["get", "post", "put", "patch", "delete"];

function element(name, text, children = []) {
  const made = document.createElement(name);
  if (text) made.textContent = text;
  made.append(...children);
  return made;
}

function parameterTable(parameters) {
  const rows = parameters.map((parameter) =>
    element("tr", "", [
      element("td", "", [element("code", parameter.name)]),
      element("td", parameter.in + (parameter.required ? ", required" : "")),
      element("td", parameter.description ?? ""),
    ]));
  return element("table", "", rows);
}

function operationView(method, path, operation) {
  const badge = element("span", method.toUpperCase());
  badge.className = "method";
  const view = element("details", "", [
    element("summary", "", [badge, element("code", path), element("small", operation.summary ?? "")]),
  ]);
  if (operation.description) view.append(element("p", operation.description));
  if (operation.parameters?.length) view.append(parameterTable(operation.parameters));
  const body = operation.requestBody?.content?.["application/json"]?.schema;
  if (body) view.append(element("h4", "Body"), element("pre", JSON.stringify(body, null, 2)));
  return view;
}

function draw(schema) {
  const groups = new Map();
  for (const [path, operations] of Object.entries(schema.paths)) {
    for (const method of METHODS.filter((name) => operations[name])) {
      const group = operations[method].tags?.[0] ?? "other";
      if (!groups.has(group)) groups.set(group, []);
      groups.get(group).push(operationView(method, path, operations[method]));
    }
  }
  const views = [...groups].flatMap(([name, operations]) => [element("h2", name), ...operations]);
  if (schema.components?.schemas) {
    const schemas = Object.entries(schema.components.schemas).map(([name, value]) =>
      element("details", "", [
        element("summary", "", [element("code", name)]),
        element("pre", JSON.stringify(value, null, 2)),
      ]));
    views.push(element("h2", "schemas"), ...schemas);
  }
  document.getElementById("routes").replaceChildren(...views);
}

const answer = await fetch("/openapi.json");
draw(await answer.json());
