package gate

// guestVerb as the first argument makes the test binary play a guest.
const guestVerb = "play-guest"

func guestMain([]string) int { return 1 }
