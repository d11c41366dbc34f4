// Signing in: by the code in the hash of the address, which `tuner open` makes, or by pasting a token.
import { useSignal } from "@preact/signals";
import { useEffect } from "preact/hooks";
import { asProblem } from "../api/resource";
import { signIn } from "../api/session";
import { Copyable } from "../parts/controls";
import { go, place, route } from "../state/address";

export function LoginPage() {
  const fault = useSignal("");
  const busy = useSignal(false);
  const token = useSignal("");
  document.title = "Sign in · Tuner"; // without the name of what somebody looked at

  const enter = async (given: { code: string } | { token: string }) => {
    busy.value = true;
    fault.value = "";
    try {
      await signIn(given);
      go(route.value.page === "login" ? "/" : place.value.path + place.value.search, true);
    } catch (error) {
      fault.value = asProblem(error).detail;
    } finally {
      busy.value = false;
    }
  };

  useEffect(() => {
    const code = new URLSearchParams(location.hash.slice(1)).get("code");
    if (!code) return;
    history.replaceState(null, "", location.pathname + location.search); // out of the history of the browser
    void enter({ code });
  }, []);

  return (
    <section class="login" aria-labelledby="sign-in">
      <h1 id="sign-in">Sign in</h1>
      <p>On the machine of the service:</p>
      <Copyable text="tuner open" />
      <p class="muted">It opens this page with a code that is good once and for a minute.</p>
      <form
        onSubmit={(event) => {
          event.preventDefault();
          void enter({ token: token.value.trim() });
        }}
      >
        <label for="token">
          Or paste a token, from the file <code>token</code> of the service's home folder
        </label>
        <div class="row">
          <input
            id="token"
            type="password"
            autocomplete="off"
            spellcheck={false}
            value={token.value}
            onInput={(event) => {
              token.value = event.currentTarget.value;
            }}
          />
          <button type="submit" class="primary" disabled={busy.value || !token.value.trim()}>
            Sign in
          </button>
        </div>
        {fault.value && (
          <p class="fault" role="alert">
            {fault.value}
          </p>
        )}
      </form>
    </section>
  );
}
