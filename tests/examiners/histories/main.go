// Check recorded histories with porcupine: `histories MODEL FILE…`, with the model `election`, `lease` or `ledger`.
//
// A file has an operation per line, as JSON. An operation whose process was killed has no outcome: it may have taken
// effect until its process was dead, or never.
package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/anishathalye/porcupine"
)

type operation struct {
	Client  int    `json:"client"`
	Name    string `json:"name"`
	Token   int64  `json:"token"`
	Batch   int64  `json:"batch"`
	Value   string `json:"value"`
	Outcome string `json:"outcome"`
	Call    int64  `json:"call"`
	Return  int64  `json:"return"`
}

// state is the newest token; open means that a term after it was claimed, whose token nobody reported. rows has the
// rows of all committed batches.
type state struct {
	token int64
	open  bool
	last  int64
	rows  string
}

// In an election only the newest term can be renewed, and tokens increase.
func election(s state, o operation) []state {
	switch o.Name + " " + o.Outcome {
	case "win ok":
		if o.Token > s.token {
			return []state{{token: o.Token}}
		}
	case "win unknown":
		return []state{s, {token: s.token, open: true}}
	case "renew ok":
		if o.Token == s.token && !s.open {
			return []state{s}
		}
	case "renew lost":
		if o.Token < s.token || s.open {
			return []state{s}
		}
	}
	return nil
}

// A lease is held by the owner of the newest token alone. The claim of a term is part of the next owner's campaign, and
// takes effect when the campaign returns.
func lease(s state, o operation) []state {
	switch o.Name + " " + o.Outcome {
	case "win ok":
		if o.Token > s.token {
			return []state{{token: o.Token}}
		}
	case "hold ok":
		if o.Token == s.token {
			return []state{s}
		}
	}
	return nil
}

// A ledger commits a batch once, with the newest token only; readers see all committed batches.
func ledger(s state, o operation) []state {
	committed := state{token: s.token, last: o.Batch, rows: s.rows + fmt.Sprintf("%d=%s;", o.Batch, o.Value)}
	switch o.Name + " " + o.Outcome {
	case "claim ok":
		if o.Token > s.token {
			return []state{{token: o.Token, last: s.last, rows: s.rows}}
		}
	case "claim unknown":
		// Tokens of a ledger increase by one.
		return []state{s, {token: s.token + 1, last: s.last, rows: s.rows}}
	case "write committed":
		if o.Token == s.token && o.Batch > s.last {
			return []state{committed}
		}
	case "write skipped":
		if o.Token == s.token && o.Batch == s.last {
			return []state{s}
		}
	case "write refused":
		if o.Token < s.token || o.Batch < s.last {
			return []state{s}
		}
	case "write unknown":
		if o.Token == s.token && o.Batch > s.last {
			return []state{s, committed}
		}
		return []state{s}
	case "read ok":
		if o.Value == s.rows {
			return []state{s}
		}
	}
	return nil
}

func read(name string) ([]porcupine.Operation, error) {
	file, err := os.Open(name)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	var history []porcupine.Operation
	lines := bufio.NewScanner(file)
	lines.Buffer(nil, 1<<24)
	for lines.Scan() {
		o := operation{}
		if err := json.Unmarshal(lines.Bytes(), &o); err != nil {
			return nil, err
		}
		history = append(history, porcupine.Operation{ClientId: o.Client, Input: o, Call: o.Call, Output: o, Return: o.Return})
	}
	return history, lines.Err()
}

func main() {
	steps := map[string]func(state, operation) []state{"election": election, "lease": lease, "ledger": ledger}
	step := steps[os.Args[1]]
	model := porcupine.NondeterministicModel{
		Init: func() []interface{} { return []interface{}{state{last: -1}} },
		Step: func(s, input, output interface{}) []interface{} {
			var next []interface{}
			for _, each := range step(s.(state), output.(operation)) {
				next = append(next, each)
			}
			return next
		},
		Equal: func(a, b interface{}) bool { return a == b },
	}
	bad := 0
	for _, name := range os.Args[2:] {
		history, err := read(name)
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(2)
		}
		result := porcupine.CheckOperationsTimeout(model.ToModel(), history, 2*time.Minute)
		fmt.Printf("%s %d %s\n", strings.ToLower(string(result)), len(history), name)
		if result != porcupine.Ok {
			bad++
		}
	}
	if bad > 0 {
		os.Exit(1)
	}
}
