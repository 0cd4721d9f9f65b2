package rootfs

import (
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

func TestSBOM(t *testing.T) {
	m := Manifest{
		RecipeDigest: strings.Repeat("0a", 32), BuilderVersion: 2, Mtime: 1767225600, Suite: "trixie",
		Image: ImageInfo{File: ImageFile, SHA256: strings.Repeat("0b", 32), Size: 4096},
		Packages: []Package{
			{Name: "libstdc++6", Version: "14.2.0-19", Architecture: "amd64", Licenses: []string{"GPL-3+"}},
			{Name: "ffmpeg", Version: "7:7.1.5-0+deb13u1", Architecture: "amd64"},
		},
		Modules: []Module{
			{Name: "@img/sharp-linux-x64", Version: "0.35.0", License: "Apache-2.0", Integrity: "sha512-AAEC"},
			{Name: "odd", Version: "1.0.0", License: "SEE LICENSE IN x"},
		},
	}
	bill := m.SBOM()
	find := func(id string) SBOMPackage {
		i := slices.IndexFunc(bill.Packages, func(p SBOMPackage) bool { return p.ID == id })
		if i < 0 {
			t.Fatalf("no entry %s", id)
		}
		return bill.Packages[i]
	}
	for id, purl := range map[string]string{
		"SPDXRef-deb-ffmpeg-amd64":                "pkg:deb/debian/ffmpeg@7%3A7.1.5-0%2Bdeb13u1?arch=amd64&distro=trixie",
		"SPDXRef-npm--img-sharp-linux-x64-0.35.0": "pkg:npm/%40img/sharp-linux-x64@0.35.0",
	} {
		if got := find(id).References[0].Locator; got != purl {
			t.Errorf("%s is %s, want %s", id, got, purl)
		}
	}
	sharp := find("SPDXRef-npm--img-sharp-linux-x64-0.35.0")
	if sharp.LicenseDeclared != "Apache-2.0" || len(sharp.Checksums) != 1 || sharp.Checksums[0].Value != "000102" {
		t.Errorf("sharp: %+v", sharp)
	}
	if got := find("SPDXRef-npm-odd-1.0.0").LicenseDeclared; got != noAssertion {
		t.Errorf("a free-text licence became %s", got)
	}
	if got := find("SPDXRef-deb-libstdc--6-amd64").LicenseComments; !strings.Contains(got, "GPL-3+") {
		t.Errorf("libstdc++6: %q", got)
	}
	if len(bill.Relationships) != 4 || bill.CreationInfo.Created != "2026-01-01T00:00:00Z" {
		t.Errorf("%d relationships, created %s", len(bill.Relationships), bill.CreationInfo.Created)
	}
	path := filepath.Join(t.TempDir(), SBOMFile)
	if err := bill.write(path); err != nil {
		t.Fatal(err)
	}
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	var back SBOM
	if err := json.Unmarshal(data, &back); err != nil || back.Namespace != bill.Namespace {
		t.Errorf("read again: %v", err)
	}
}

func TestLicenses(t *testing.T) {
	got := licenses("Format: x\n\nFiles: *\nLicense: GPL-2+\n\nFiles: a\nLicense: Expat\n text\n\nLicense: GPL-2+\n")
	if !slices.Equal(got, []string{"Expat", "GPL-2+"}) {
		t.Errorf("licences: %q", got)
	}
	if got := licenses("This package was debianized\nLicense: none\n"); got != nil {
		t.Errorf("free text gave %q", got)
	}
}
