/* The operations API as the screens use it: JSON in, JSON out, a refusal as an error that says what the server said. */

export class ApiError extends Error {
  constructor(status, problem) {
    super(problem.detail || problem.title || `the server answers ${status}`);
    this.status = status;
    this.problem = problem;
  }
}

/** Ask; null for an empty answer. Throws ApiError, also where the server is away (status 0). */
export async function api(method, path, body) {
  let answer;
  try {
    answer = await fetch(path, { method, headers: body === undefined ? {} : { "Content-Type": "application/json" }, body: body === undefined ? undefined : JSON.stringify(body) });
  } catch {
    throw new ApiError(0, { detail: "the operations API is away" });
  }
  if (answer.status === 204) return null;
  const content = await answer.json().catch(() => ({}));
  if (!answer.ok) throw new ApiError(answer.status, content);
  return content;
}

export const get = (path) => api("GET", path);
export const enc = encodeURIComponent;
